"""How the middle of a context is cut: into runs of blocks that are moved and computed one by one.

A piece lies within one segment (onggi_core.segments), as the agent lays it out on disk, and has no
more blocks than fit into a place on the device. Where pieces begin depends on nothing else, so a
piece keeps its bounds while the context grows behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from onggi_core.segments import Segments

BOUNDS_BYTES: Final = 128
"""Of one object of them and its numbers, in a list."""


class Bounds(NamedTuple):
    """Blocks `first` up to, and without, `end`."""

    first: int
    end: int


class Cut:
    """Of one block size and one greatest piece; the pieces of the middle, which begins at block
    `first`."""

    def __init__(self, block_tokens: int, first: int, blocks_max: int) -> None:
        self._segments = Segments(block_tokens)
        self._first = first
        self._blocks_max = blocks_max
        self._whole: list[Bounds] = []
        """Those that are as long as they will get, as far as they were ever asked for."""

    @property
    def first(self) -> int:
        return self._first

    def pieces(self, end: int) -> list[Bounds]:
        """The pieces of blocks up to, and without, `end`. The last one may still grow."""
        found = []
        for whole in self._from_start():
            if whole.first >= end:
                break
            found.append(Bounds(whole.first, min(whole.end, end)))
        return found

    def count(self, end: int) -> int:
        """How many pieces(end) are."""
        while not self._whole or self._whole[-1].first < end:
            self._extend()
        return bisect_left(self._whole, (end,))

    def firsts(self, end: int) -> Iterator[int]:
        """Where the pieces of blocks up to `end` begin."""
        return (whole.first for whole in islice(self._whole, self.count(end)))

    @property
    def nbytes(self) -> int:
        """What is known of pieces."""
        return BOUNDS_BYTES * len(self._whole)

    def whole(self, number: int) -> Bounds:
        """The bounds of piece `number` once it is complete."""
        while len(self._whole) <= number:
            self._extend()
        return self._whole[number]

    def _from_start(self) -> Iterator[Bounds]:
        number = 0
        while True:
            yield self.whole(number)
            number += 1

    def _extend(self) -> None:
        first = self._whole[-1].end if self._whole else self._first
        end = min(self._segments.end_after(first), first + self._blocks_max)
        self._whole.append(Bounds(first, end))


class Spots(Collection[tuple[int, int]]):
    """(layer, first block) of all pieces of a context, made as they are asked for: of a million
    tokens in small pieces there are hundreds of thousands."""

    def __init__(self, cut: Cut, ends: Sequence[int]) -> None:
        """ends: of each layer's blocks."""
        self._cut = cut
        self._ends = ends

    def __len__(self) -> int:
        return sum(map(self._cut.count, self._ends))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (
            (layer, first)
            for layer, end in enumerate(self._ends)
            for first in self._cut.firsts(end)
        )

    def __contains__(self, spot: object) -> bool:
        return any(one == spot for one in self)
