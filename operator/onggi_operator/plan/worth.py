"""What memory is worth to an agent: tokens a second that need not be computed, by its size."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

DISK_HIT_WORTH: Final = 0.9
"""Of a hit from memory. A prompt of 56 MiB took 0.62 s to compute on the machine where this was
measured; its bytes come from memory in 4 ms and from a disk of 1 GiB/s in 55, so a hit from disk
spares nine tenths of what one from memory does."""

Point = tuple[int, float]

KEPT_MAX: Final = 20_000
"""Answers remembered: rounds come several times as often as an agent's reports, and until the next
of these nothing changes. One an agent, at 1.5 KiB."""


@dataclass(frozen=True, slots=True)
class Worth:
    """`hull` rises, ever less steeply: the least such line above what was measured. Judged by it,
    sizes can be compared a little at a time, and a cliff in the curve (a loop that does not fit)
    draws memory as much as its height is worth over the way there."""

    hull: tuple[Point, ...]

    def at(self, size_bytes: int) -> float:
        """Tokens a second; beyond what was measured, no more than there."""
        place = bisect_right(self.hull, size_bytes, key=lambda point: point[0])
        if place == len(self.hull):
            return self.hull[-1][1]
        (left, low), (right, high) = self.hull[place - 1], self.hull[place]
        return low + (high - low) * (size_bytes - left) / (right - left)


@lru_cache(KEPT_MAX)
def worth_of(curve: tuple[Point, ...], *, tokens_per_s: float, disk_bytes: int = 0) -> Worth | None:
    """From a curve of (bytes, share of what is asked for that hits) and how much is asked for. None
    without a curve. What lies on disk beside the memory is hit anyway, for a little less."""
    if not curve:
        return None
    measured = Worth(_hull([(0, 0.0), *curve]))
    on_disk = measured.at(disk_bytes) if disk_bytes > 0 else 0.0
    sizes = {0, disk_bytes, *(size for size, _ in curve)}

    def value(size_bytes: int) -> float:
        share = measured.at(size_bytes)
        return share + DISK_HIT_WORTH * max(0.0, on_disk - share)

    return Worth(_hull((size, tokens_per_s * value(size)) for size in sizes))


def _hull(points: Iterable[Point]) -> tuple[Point, ...]:
    """The upper hull, never falling: less is held where more would do no good."""
    hull: list[Point] = []
    for x, measured in sorted(points):
        y = max(measured, hull[-1][1]) if hull else measured
        while len(hull) > 1 and _is_under(hull[-2], hull[-1], (x, y)):
            hull.pop()
        if hull and hull[-1][0] == x:
            hull[-1] = (x, y)
        else:
            hull.append((x, y))
    return tuple(hull)


def _is_under(left: Point, middle: Point, right: Point) -> bool:
    """Whether the middle one lies on or under the line between the others."""
    over = (middle[1] - left[1]) * (right[0] - left[0])
    return over <= (right[1] - left[1]) * (middle[0] - left[0])
