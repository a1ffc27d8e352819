"""Blocks whose load failed, remembered for a while.

vLLM asks again for a request whose load failed at its first block. An unchanged answer would fail
again, for ever; so a failed block is not offered until its entry is too old.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

REMEMBERED_S: Final = 10.0
"""Longer than a recomputed request stays in the queue, short enough that an agent that came back
is used again soon."""

FAILURES_MAX: Final = 65_536
"""Entries of some 100 bytes. A full table is emptied: what fails again is noted again."""


class Failures:
    def __init__(self) -> None:
        self._until_s: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until_s)

    def note(self, key: bytes, now_s: float) -> None:
        if len(self._until_s) >= FAILURES_MAX:
            self._until_s.clear()
        self._until_s[key] = now_s + REMEMBERED_S

    def forget(self, keys: Iterable[bytes]) -> None:
        """These blocks were saved anew: what is there now is not what failed."""
        if self._until_s:
            for key in keys:
                self._until_s.pop(key, None)

    def first(self, keys: Sequence[bytes], now_s: float) -> int:
        """How many of `keys` come before the first failed one; all of them if none failed."""
        if not self._until_s:
            return len(keys)
        for number, key in enumerate(keys):
            until_s = self._until_s.get(key)
            if until_s is None:
                continue
            if now_s < until_s:
                return number
            del self._until_s[key]
        return len(keys)
