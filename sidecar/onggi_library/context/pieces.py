"""How the middle of a context is cut: into runs of blocks that are moved and computed one by one.

A piece lies within one segment (onggi_core.segments), as the agent lays it out on disk, and has no
more blocks than fit into a place on the device. Where pieces begin depends on nothing else, so a
piece keeps its bounds while the context grows behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onggi_core.segments import Segments


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
