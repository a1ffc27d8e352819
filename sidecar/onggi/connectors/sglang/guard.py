"""The boundary with the engine: an error of ours costs a hit, never a request.

A storage thread of SGLang outlives some errors and ends at others, so none leaves: it is counted,
logged once a call, and answered as a miss. Too many, and the backend stops taking part.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

log: Final = logging.getLogger("onggi")

FAULTS_MAX: Final = 50
"""Faults after which the backend stands back for good: something is wrong that trying does not
mend."""

_Call = TypeVar("_Call", bound=Callable[..., Any])


class Faults:
    """What went wrong, by call. Calls come from several threads of the engine's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_call: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.by_call.total()

    @property
    def too_many(self) -> bool:
        return self.total >= FAULTS_MAX

    def note(self, call: str, error: Exception) -> None:
        with self._lock:
            self.by_call[call] += 1
            first, last = self.by_call[call] == 1, self.total == FAULTS_MAX
        if first:
            log.error("onggi: %s failed; it counts as a miss", call, exc_info=error)
        if last:
            log.error("onggi: the backend stands back after %d faults", FAULTS_MAX)


def guarded(miss: Callable[..., Any], *, always: bool = False) -> Callable[[_Call], _Call]:
    """Wraps a method of an object with a `faults` attribute. miss: what to answer instead, made
    from the arguments of the call. always: also after too many faults."""

    def wrap(method: _Call) -> _Call:
        @functools.wraps(method)
        def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.faults.too_many and not always:
                return miss(*args, **kwargs)
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the engine must outlive whatever this is
                self.faults.note(method.__name__, error)
                return miss(*args, **kwargs)

        return inner  # type: ignore[return-value]

    return wrap
