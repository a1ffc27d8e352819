"""What memory is worth to an agent: tokens a second that need not be computed, by its size."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

DISK_HIT_WORTH: Final = 0.9
"""Of a hit from memory. A prompt of 56 MiB took 0.62 s to compute on the machine where this was
measured; its bytes come from memory in 4 ms and from a disk of 1 GiB/s in 55, so a hit from disk
spares nine tenths of what one from memory does."""

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Hull:
    """The least line above what was measured that rises ever less steeply. Judged by it, sizes can
    be compared a little at a time, and a cliff in the curve (a loop that does not fit) draws memory
    as much as its height is worth over the way there."""

    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def at(self, size_bytes: int) -> float:
        """Beyond what was measured, no more than there."""
        sizes, values = self.sizes, self.values
        place = bisect_right(sizes, size_bytes)
        if place == len(sizes):
            return values[-1]
        left, low = sizes[place - 1], values[place - 1]
        return low + (values[place] - low) * (size_bytes - left) / (sizes[place] - left)


@dataclass
class Worth:
    """Of a curve of (bytes, share of what is asked for that hits), which is not empty, and how much
    is asked for. What lies on disk beside the memory is hit anyway, for a little less. The line is
    drawn once somebody asks: in most rounds it is nobody's turn on a node, and nobody does."""

    curve: tuple[Point, ...]
    tokens_per_s: float
    disk_bytes: int

    def at(self, size_bytes: int) -> float:
        """Tokens a second."""
        return self._line.at(size_bytes)

    @cached_property
    def _line(self) -> _Hull:
        measured = _hull([(0, 0.0), *self.curve])
        disk_bytes = self.disk_bytes
        on_disk = measured.at(disk_bytes) if disk_bytes > 0 else 0.0
        points = []
        for size_bytes in {0, disk_bytes, *(size for size, _ in self.curve)}:
            share = measured.at(size_bytes)
            spared = share + DISK_HIT_WORTH * max(0.0, on_disk - share)
            points.append((size_bytes, self.tokens_per_s * spared))
        return _hull(points)


def worth_of(curve: tuple[Point, ...], *, tokens_per_s: float, disk_bytes: int = 0) -> Worth | None:
    """None without a curve."""
    return Worth(curve, tokens_per_s, disk_bytes) if curve else None


def _hull(points: Iterable[Point]) -> _Hull:
    """Never falling: less is held where more would do no good."""
    sizes: list[int] = []
    values: list[float] = []
    for x, y in sorted(points):
        if values and y < values[-1]:
            y = values[-1]  # noqa: PLW2901 - the line goes on as high
        while len(sizes) > 1:
            # Whether the last point lies on or under the line from the one before it to this one.
            left, low = sizes[-2], values[-2]
            if (values[-1] - low) * (x - left) > (y - low) * (sizes[-1] - left):
                break
            del sizes[-1], values[-1]
        if sizes and sizes[-1] == x:
            values[-1] = y
        else:
            sizes.append(x)
            values.append(y)
    return _Hull(tuple(sizes), tuple(values))
