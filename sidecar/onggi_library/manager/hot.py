"""Which values are worth a place on the device, learned from what was asked for, and how sure that
is.

Pure: gets in, answers out. How often each value was asked for lately is kept in a table of fixed
size (a count-min sketch that is halved now and then, as in Einziger et al., "TinyLFU", 2017).
Whether counts choose better than last uses do depends on who asks, so both are tried on numbers
alone, and the better one of the last windows is followed; until the first is over, the default.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

WINDOW: Final = 512
"""Gets after which both choices are judged."""
WEIGHT: Final = 0.5
"""Of the newest window."""
CLEARLY: Final = 1.05
"""Counts are followed if they meet so many times as many gets."""
PASS_SHARE: Final = 8
"""Values that pass through have one part in so many of the device: enough to be asked for again
soon."""
SHADOW_MAX: Final = 1024
"""Values that each trial holds, at most: a quarter of a megabyte. With more places than that, one
value in so many is looked at, and as many places."""
COLUMNS: Final = 1 << 14
"""Of each row: 64 KiB in all, for some ten thousand values told apart."""
_SPREADS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""Odd and without a pattern: one a row."""
COUNT_MAX: Final = 255
HALVE_AFTER: Final = 10 * COLUMNS
"""Gets until all counts are halved: what was asked for long ago is forgotten."""
_HALVED: Final = bytes(count >> 1 for count in range(256))


class HotSet:
    """Not thread-safe."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._by_use, self._by_count = ByUse(), ByCount(self.counts)
        self._met_by_use = self._met_by_count = 0.0
        """Of a window, lately."""
        self._window: Counter[int] = Counter()
        self._asked = self._met = 0
        self._uses = self._counted = 0
        self.sureness: float | None = None
        """0 to 1: of the gets that as many values could have met at best, those that the values on
        the device met, lately; what was brought up for a guess is not counted as met. None: fewer
        than a window of gets so far."""

    def asked(self, serial: int, *, met: bool, places: int) -> None:
        """A value was asked for. met: it had stayed on the device, where `places` values are."""
        self.counts.count(serial)
        self._window[serial] += 1
        self._asked += 1
        self._met += met
        rate = -(-places // SHADOW_MAX) or 1
        if _columns(serial)[0] % rate == 0:
            self._uses += self._by_use.ask(serial, places // rate)
            self._counted += self._by_count.ask(serial, places // rate)
        if self._asked == WINDOW:
            self._judge(places)

    @property
    def by_count(self) -> bool:
        """Whether counts choose clearly better than last uses did lately."""
        return self._met_by_count > CLEARLY * self._met_by_use

    def _judge(self, places: int) -> None:
        best = sum(count for _, count in self._window.most_common(places))
        if best:
            share = min(1.0, self._met / best)
            before = share if self.sureness is None else self.sureness
            self.sureness = before + WEIGHT * (share - before)
        self._met_by_use += WEIGHT * (self._uses - self._met_by_use)
        self._met_by_count += WEIGHT * (self._counted - self._met_by_count)
        self._window.clear()
        self._asked = self._met = self._uses = self._counted = 0


class Counts:
    """How often each value was asked for lately: never too few, and seldom too many."""

    def __init__(self) -> None:
        self._rows = [bytearray(COLUMNS) for _ in _SPREADS]
        self._seen = 0

    def often(self, serial: int) -> int:
        return min(row[at] for row, at in zip(self._rows, _columns(serial), strict=True))

    def worth_more(self, serial: int, other: int) -> bool:
        """Whether a value that was just asked for should have the place of another one."""
        return self.often(serial) - 1 > self.often(other)

    def count(self, serial: int) -> None:
        often, columns = self.often(serial), _columns(serial)
        if often < COUNT_MAX:
            for row, at in zip(self._rows, columns, strict=True):
                row[at] = max(row[at], often + 1)
        self._seen += 1
        if self._seen >= HALVE_AFTER:
            self._seen = 0
            self._rows = [row.translate(_HALVED) for row in self._rows]


class ByUse:
    """A trial of the default: the value used longest ago goes."""

    def __init__(self) -> None:
        self._here: OrderedDict[int, None] = OrderedDict()

    def ask(self, serial: int, places: int) -> bool:
        """Whether the value was there; it is now."""
        met = serial in self._here
        self._here[serial] = None
        self._here.move_to_end(serial)
        while len(self._here) > places:
            self._here.popitem(last=False)
        return met


class ByCount:
    """A trial of what the device's tier does with counts."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._here: OrderedDict[int, None] = OrderedDict()
        self._passing: OrderedDict[int, None] = OrderedDict()

    def ask(self, serial: int, places: int) -> bool:
        """Whether the value was there; it is now."""
        part = self._here if serial in self._here else self._passing
        met = serial in part
        part[serial] = None
        part.move_to_end(serial)
        pass_max = places // PASS_SHARE
        while len(self._passing) > pass_max:
            oldest, _ = self._passing.popitem(last=False)
            if len(self._here) < places - pass_max or self._wins(oldest):
                self._here[oldest] = None
        while len(self._here) > places - pass_max:
            self._here.popitem(last=False)
        return met

    def _wins(self, serial: int) -> bool:
        rival = next(iter(self._here), None)
        return rival is not None and self._counts.worth_more(serial, rival)


def _columns(serial: int) -> list[int]:
    return [(serial * spread >> 40) % COLUMNS for spread in _SPREADS]
