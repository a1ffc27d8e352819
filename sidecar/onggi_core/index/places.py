"""Where pages of one size lie, by rows of them: a million places are some thousand rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload


class Places(Sequence[int]):
    """Byte offsets, those of pages that lie one after the other as one row."""

    __slots__ = ("_begins", "_count", "_firsts", "stride")

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self._firsts = array("q")
        """Where each row lies."""
        self._begins = array("q")
        """How many pages are before it."""
        self._count = 0

    def add(self, first: int, count: int) -> None:
        """A row behind the others."""
        if not self._firsts or first != self._end():
            self._firsts.append(first)
            self._begins.append(self._count)
        self._count += count

    def take(self, other: Places) -> None:
        """All rows of another, of pages of the same size."""
        for first, begin, end in other.rows():
            self.add(first, end - begin)

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Each row: where it lies, and where in the sequence it begins and ends."""
        ends = (*self._begins[1:], self._count)
        return zip(self._firsts, self._begins, ends, strict=bool(self._firsts))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for first, begin, end in self.rows():
            yield from range(first, first + (end - begin) * self.stride, self.stride)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._count))]
        at = range(self._count)[index]
        row = bisect_right(self._begins, at) - 1
        return self._firsts[row] + (at - self._begins[row]) * self.stride

    def _end(self) -> int:
        return self._firsts[-1] + (self._count - self._begins[-1]) * self.stride


def rows_of(stride: int, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where rows of pages of one size begin and end in a sequence of places."""
    if isinstance(places, Places) and places.stride == stride:
        for _, begin, end in places.rows():
            yield begin, end
        return
    begin = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != places[at - 1] + stride:
            yield begin, at
            begin = at
