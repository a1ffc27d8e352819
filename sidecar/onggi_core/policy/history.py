"""A sample of the keys that come by: how often, how long ago, and so how soon they come back."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final

from onggi_core.policy.classes import CLASSES, COUNT_MAX
from onggi_core.policy.reuse import BUCKETS, Learning, Reuse, bucket_of

_WALK: Final = 4
"""Watched keys looked at for each one that comes by: a pass over all of them takes a quarter as
many keys as are watched, and no single call pays for it."""


class History:
    """Numbers each key it watches, from 0 up to `keys_max`; a number goes to another key when the
    one that came by longest ago is forgotten."""

    def __init__(self, keys_max: int, reuse: Reuse) -> None:
        self._keys_max = keys_max
        self._reuse = reuse
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._last = array("q")
        self._count = array("B")
        self._cursor = 0
        self._waiting = [[0] * BUCKETS for _ in range(CLASSES)]
        self._known = [reuse.begin(number) for number in range(CLASSES)]
        self._to_learn: list[tuple[Learning, list[int]]] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def see(self, key: bytes, use: int) -> tuple[int, int, int]:
        """A key came by: its number, how often it had before, and the number that had to be
        forgotten for it or -1. A key that comes twice in one use counts once."""
        number = self._numbers.get(key)
        if number is not None:
            count, age = self._count[number], use - self._last[number]
            if not age:
                return number, count, -1
            self._reuse.came_back(count, age)
            if count < COUNT_MAX:
                count += 1
                self._count[number] = count
            self._last[number] = use
            self._numbers.move_to_end(key)
            self._walk(use)
            return number, count, -1
        forgotten = -1
        if len(self._numbers) < self._keys_max:
            number = len(self._numbers)
            self._last.append(use)
            self._count.append(0)
        else:
            _, number = self._numbers.popitem(last=False)
            forgotten = number
            self._reuse.was_lost(self._count[number], use - self._last[number])
            self._last[number] = use
            self._count[number] = 0
        self._numbers[key] = number
        self._walk(use)
        return number, 0, forgotten

    def _walk(self, use: int) -> None:
        """Counts how many wait at what age, a few keys at a time; after each pass the classes are
        worked out anew, one a call."""
        if self._to_learn:
            self._reuse.learn(*self._to_learn.pop(0))
            if not self._to_learn:
                self._known = [self._reuse.begin(number) for number in range(CLASSES)]
            return
        last, counts, waiting = self._last, self._count, self._waiting
        end = min(self._cursor + _WALK, len(last))
        for number in range(self._cursor, end):
            waiting[counts[number]][bucket_of(use - last[number])] += 1
        self._cursor = end
        if end == len(last):
            self._cursor = 0
            self._to_learn = list(zip(self._known, waiting, strict=True))
            self._waiting = [[0] * BUCKETS for _ in range(CLASSES)]
