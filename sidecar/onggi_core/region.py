"""One region of a tier given to one page size, and who owns each of its pages.

Four bytes a page: the owner's number, or a negative one for a page without a block. It is the map
of free pages too, searched by one `find`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from onggi_core.index.counting import in_a_row

FREE: Final = -1
FREE_PAGE: Final = b"\xff\xff\xff\xff"
BLOCKS_MAX: Final = 0x7F000000
"""Owners from 0 to below this are blocks. No owner's last byte is all ones, so that what `find`
finds begins with a page."""
QUARANTINED: Final = BLOCKS_MAX
"""Nobody's block, but a client may still write to it."""
RETIRED: Final = BLOCKS_MAX + 1
"""The device failed here: never given again."""
ROOM: Final = BLOCKS_MAX + 2
"""Nobody's block yet: a client writes to it ahead of saying which."""


class Region:
    """Pages of one size. owners: int32 a page, FREE where it has none."""

    __slots__ = ("begin", "free", "low", "owners", "queued", "retired", "stride")

    def __init__(self, begin: int, stride: int, pages: int) -> None:
        self.begin = begin
        self.stride = stride
        self.owners = bytearray(FREE_PAGE) * pages
        self.free = pages
        self.low = 0
        """No page before this one is free: where a search begins. Pages that are asked for one by
        one would otherwise take a look at each one before them."""
        self.retired = 0
        self.queued = False
        """Whether it is among those that have a free page."""

    @property
    def pages(self) -> int:
        return len(self.owners) >> 2

    @property
    def used(self) -> int:
        return self.pages - self.free - self.retired

    def find(self, count: int) -> int:
        """The first of `count` free pages in a row, or -1."""
        at = self.owners.find(FREE_PAGE * count, self.low << 2)
        if at < 0:
            return at
        if count == 1:
            self.low = at >> 2
        return at >> 2

    def give(self, index: int, owners: Sequence[int]) -> None:
        end = (index + len(owners)) << 2
        self.owners[index << 2 : end] = _packed(owners)
        self.free -= len(owners)
        if index == self.low:
            self.low += len(owners)

    def take_back(self, index: int, count: int) -> None:
        """The pages from `index` on are free again."""
        self.owners[index << 2 : (index + count) << 2] = FREE_PAGE * count
        self.free += count
        self.low = min(self.low, index)

    def owners_of(self, index: int, count: int) -> bytearray:
        """Of `count` pages from `index` on, four bytes each, as far as there are pages."""
        return self.owners[index << 2 : (index + count) << 2]

    def owner(self, index: int) -> int:
        raw = self.owners[index << 2 : (index + 1) << 2]
        return array("i", raw)[0]

    def set_owners(self, index: int, owners: Sequence[int]) -> None:
        """Of pages that stay taken; `take_back` is for those that do not."""
        self.owners[index << 2 : (index + len(owners)) << 2] = _packed(owners)


def _packed(owners: Sequence[int]) -> bytes:
    column = in_a_row(owners.start, len(owners)) if type(owners) is range else array("i", owners)
    return column.tobytes()
