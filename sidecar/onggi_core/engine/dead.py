"""Blocks of one tier that are worth nothing from now on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from onggi_core.page import PageState


class Dead:
    """Each has a page in the tier, and goes as soon as nobody reads or writes that."""

    __slots__ = ("blocks", "going")

    def __init__(self) -> None:
        self.blocks: set[int] = set()
        self.going: dict[int, None] = {}
        """Those that may go now, in that order. One that is read again meanwhile is passed over,
        and comes again when that ends."""

    def add(self, blocks: Sequence[int], states: bytearray) -> None:
        """Those of them that have a page."""
        self.blocks.update(block for block in blocks if states[block] != PageState.FREE)
        self.may_go(blocks, states)

    def may_go(self, blocks: Sequence[int], states: bytearray) -> None:
        """Whoever read or wrote these pages is done."""
        if self.blocks:
            for block in blocks:
                if block in self.blocks and states[block] == PageState.SEALED:
                    self.going[block] = None

    def take(self, most: int) -> list[int]:
        """The next ones to go, as far as their pages are still SEALED."""
        some = list(islice(self.going, most))
        for block in some:
            del self.going[block]
        return some

    def remove(self, blocks: Sequence[int]) -> bool:
        """They have gone, or are worth something after all. Whether one of them was dead."""
        dead = self.blocks.intersection(blocks) if self.blocks else ()
        for block in dead:
            self.blocks.remove(block)
            self.going.pop(block, None)
        return bool(dead)
