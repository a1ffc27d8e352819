"""The boundary with the engine: an error of ours costs a hit, never a request.

An exception in a scheduler hook ends vLLM for all requests, one in a worker hook ends the worker.
So every hook is wrapped; what it lets through is counted, logged once a kind, and answered as a
miss. Too many, and the connector stops taking part.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

log: Final = logging.getLogger("vllm.onggi")
"""Below vLLM's own logger, whose handlers and format then apply."""

FAULTS_MAX: Final = 50
"""Faults after which a side stands back for good: something is wrong that trying does not mend."""

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


class Faults:
    """What went wrong in one side's hooks, by hook. total: all of it; too_many: the side stands
    back. Both are looked at in every hook, so they are there to be read."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.by_hook: Counter[str] = Counter()
        self.total = 0
        self.too_many = False

    def note(self, hook: str, error: Exception) -> None:
        self.by_hook[hook] += 1
        self.total += 1
        self.too_many = self.total >= FAULTS_MAX
        if self.by_hook[hook] == 1:
            log.error("onggi: %s.%s failed; it counts as a miss", self.side, hook, exc_info=error)
        if self.total == FAULTS_MAX:
            log.error("onggi: %s stands back after %d faults", self.side, FAULTS_MAX)


def hook(miss: Callable[[], Any]) -> Callable[[_Hook], _Hook]:
    """Wraps a method of an object with a `faults` attribute. miss(): what to answer instead."""

    def wrap(method: _Hook) -> _Hook:
        @functools.wraps(method)
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the engine must outlive whatever this is
                self.faults.note(method.__name__, error)
                return miss()

        return guarded  # type: ignore[return-value]

    return wrap
