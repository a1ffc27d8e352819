"""What one layer holds: its first tokens and its newest on the device, the blocks between in tiers.

position   0 ......... sinks ................ tail_start ......... length
           | on the    | full blocks,         | on the device:   |
           | device    | by number, in tiers  | recent and a run |
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onggi_core.identity import ROOT
from onggi_library.attention.piece import Piece, Span
from onggi_library.context.errors import ContextLost, NotInTime
from onggi_library.context.geometry import Geometry
from onggi_library.context.memory import DeviceMemory
from onggi_library.context.names import Names
from onggi_library.context.pieces import Bounds
from onggi_library.context.share import Share
from onggi_library.context.store import PageStore

Leaving = Callable[[int, Any], None]
"""Told the first block and the rows [batch, tokens, width] of a run that goes down."""


class Layer:
    """Of one layer. Rows are never changed in place: sequences may share them."""

    def __init__(
        self,
        geometry: Geometry,
        share: Share,
        batch: int,
        memory: DeviceMemory,
        names: Names,
        leaving: Leaving,
    ) -> None:
        """leaving: told of rows before they go down."""
        self._geometry = geometry
        self._share = share
        self._names = names
        self._memory = memory
        self._leaving = leaving
        self._sinks = self._take(batch, share.sinks)
        self._tail = self._take(batch, share.tail)
        self.length = 0
        self.tail_start = share.sinks * geometry.block_tokens
        self.rows: list[array[int]] = [array("Q") for _ in range(batch)]
        self._left: dict[int, array[int]] = {}
        """Rows that sequences had before they were reordered, by identity: some of their blocks may
        be nobody's any more."""

    # ---- what there is

    @property
    def middle_end(self) -> int:
        """The first block that is not in the tiers."""
        return self.tail_start // self._geometry.block_tokens

    def resident(self) -> list[Piece]:
        """The pieces that are on the device, without those that the context keeps there."""
        sinks_end = min(self.length, self._share.sinks * self._geometry.block_tokens)
        found = []
        for memory, span in (
            (self._sinks, Span(0, sinks_end)),
            (self._tail, Span(self.tail_start, self.length - self.tail_start)),
        ):
            if span.length > 0:
                keys, values = self._geometry.parts(memory[:, : span.length])
                found.append(Piece(span, keys, values))
        return found

    def numbers(self, bounds: Bounds) -> list[array[int]]:
        """The blocks of a piece, a sequence at a time."""
        first = self._share.sinks
        return [row[bounds.first - first : bounds.end - first] for row in self.rows]

    # ---- growing

    def append(self, keys: Any, values: Any, store: PageStore) -> None:
        """Take in tokens; the oldest of the tail go down as it fills."""
        done, count = 0, keys.shape[2]
        while done < count:
            place, begin, room = self._place()
            if room == 0:
                self._send_down(self._share.run, store)
                continue
            some = min(room, count - done)
            self._geometry.fill(
                place[:, begin : begin + some],
                keys[:, :, done : done + some],
                values[:, :, done : done + some],
            )
            done += some
            self.length += some

    def _place(self) -> tuple[Any, int, int]:
        """Where the next token goes: memory, index, and room there."""
        sinks = self._share.sinks * self._geometry.block_tokens
        if self.length < sinks:
            return self._sinks, self.length, sinks - self.length
        used = self.length - self.tail_start
        return self._tail, used, self._tail.shape[1] - used

    def _send_down(self, blocks: int, store: PageStore) -> None:
        moved = blocks * self._geometry.block_tokens
        there = self._keep(blocks, store)
        self._leaving(self.middle_end, self._tail[:, :moved])
        self.rows = [row + array("Q", new) for row, new in zip(self.rows, there, strict=True)]
        self.tail_start += moved
        self._close_up(moved)
        self.sweep(store)

    def _keep(self, blocks: int, store: PageStore) -> list[range]:
        """Have the tail's first blocks in the tiers, of all sequences or of none; their numbers."""
        moved, there = blocks * self._geometry.block_tokens, list[range]()
        try:
            for number, row in enumerate(self.rows):
                new = self._names.new(blocks)
                parent = self._names.key(row[-1]) if row else ROOT
                rows = self._tail[number, :moved]
                store.put(self._names.keys(new), rows, parent=parent, depth=len(row))
                there.append(new)
        except NotInTime:
            for new in there:
                store.discard(self._names.keys(new))
            raise
        return there

    def _close_up(self, moved: int) -> None:
        """Move what is left of the tail to its beginning, in steps that do not overlap."""
        left = self.length - self.tail_start
        for begin in range(0, left, moved):
            end = min(left, begin + moved)
            self._tail[:, begin:end].copy_(self._tail[:, begin + moved : end + moved])

    # ---- under a name

    def all_blocks(self, store: PageStore) -> list[array[int]]:
        """Each sequence's blocks from its first token on, all of them in the tiers; the last one
        may be filled in part."""
        ends = []
        for memory, used in self._used():
            blocks = -(-used // self._geometry.block_tokens)
            rows = memory[:, : blocks * self._geometry.block_tokens]
            new = [self._names.new(blocks) for _ in self.rows]
            for number, numbers in enumerate(new):
                if blocks:
                    store.put(self._names.keys(numbers), rows[number])
            ends.append(new)
        return [
            array("Q", first) + row + array("Q", last)
            for first, row, last in zip(ends[0], self.rows, ends[1], strict=True)
        ]

    def take_over(self, blocks: Sequence[array[int]], length: int, store: PageStore) -> None:
        """Have the blocks of `all_blocks`. Raises ContextLost if one is gone."""
        block, sinks = self._geometry.block_tokens, self._share.sinks
        full = max(sinks, length // block)
        for number, row in enumerate(blocks):
            if not store.holds(self._names.keys(row)):
                raise ContextLost("blocks of what was saved are gone; compute the context again")
            for memory, part in ((self._sinks, row[:sinks]), (self._tail, row[full:])):
                if part:
                    shape = len(part) * block, memory.shape[2]
                    page = torch.empty(shape, dtype=memory.dtype, device="cpu")
                    store.fetch(self._names.keys(part), page)
                    memory[number, : len(page)].copy_(page)
        self.rows = [row[sinks:full] for row in blocks]
        store.adopt(len({number for row in self.rows for number in row}))
        self.tail_start, self.length = full * block, length

    # ---- changing

    def crop(self, length: int, store: PageStore) -> None:
        """Forget what is behind `length`. Raises NotInTime, with nothing changed, and ContextLost
        if a block that is cut is gone."""
        block = self._geometry.block_tokens
        sinks = self._share.sinks * block
        if length < self.tail_start:
            end = max(sinks, length // block * block)
            if length > end:
                cut = Bounds(end // block, end // block + 1)
                pages = [tail[:block].cpu().clone() for tail in self._tail]
                for row, page in zip(self.numbers(cut), pages, strict=True):
                    store.fetch(self._names.keys(row), page)
                for number, page in enumerate(pages):
                    self._tail[number, :block].copy_(page)
            self._leave(self.rows)
            self.rows = [row[: (end - sinks) // block] for row in self.rows]
            self.tail_start = end
            self.sweep(store)
        self.length = length

    def reorder(self, order: Sequence[int]) -> None:
        """Sequence n becomes what sequence order[n] is. As many as before."""
        self._leave(self.rows)
        self.rows = [self.rows[number] for number in order]
        for memory, used in self._used():
            shuffle(memory, used, order, self._geometry.block_tokens)

    def select(self, order: Sequence[int], share: Share, store: PageStore) -> None:
        """As reorder, for another number of sequences, and with another share of the device."""
        blocks = -(-max(0, self.length - self.tail_start) // self._geometry.block_tokens)
        if blocks > share.tail:
            full = max(0, self.length - self.tail_start) // self._geometry.block_tokens
            self._send_down(min(full, blocks - share.tail), store)
        self._leave(self.rows)
        self.rows = [self.rows[number] for number in order]
        kept = [memory[:, :used].cpu() for memory, used in self._used()]
        self.give_back()
        self._share = share
        self._sinks = self._take(len(order), share.sinks)
        self._tail = self._take(len(order), share.tail)
        for memory, rows in zip((self._sinks, self._tail), kept, strict=True):
            memory[:, : rows.shape[1]].copy_(rows[list(order)])
        self.sweep(store)

    def sweep(self, store: PageStore) -> None:
        """Let the agent know of blocks that no sequence has any more."""
        if not self._left:
            return
        dead = {number for row in self._left.values() for number in row}
        dead -= {number for row in self.rows for number in row}
        self._left.clear()
        store.discard(self._names.keys([n for n in sorted(dead) if self._names.mine(n)]))

    def everything(self) -> list[int]:
        """The numbers of all blocks that the layer has in the tiers."""
        return sorted({number for row in self.known_rows() for number in row})

    def known_rows(self) -> list[array[int]]:
        """The numbers of each sequence's blocks, those included that it may have no more."""
        return [*self._left.values(), *self.rows]

    def give_back(self) -> None:
        """The device's memory; nothing of the layer may be used any more."""
        self._memory.give_back(self._sinks)
        self._memory.give_back(self._tail)

    # ---- parts

    def _leave(self, rows: Sequence[array[int]]) -> None:
        self._left.update({id(row): row for row in rows if row})

    def _used(self) -> list[tuple[Any, int]]:
        sinks = self._share.sinks * self._geometry.block_tokens
        return [
            (self._sinks, min(self.length, sinks)),
            (self._tail, max(0, self.length - self.tail_start)),
        ]

    def _take(self, batch: int, blocks: int) -> Any:
        geometry = self._geometry
        shape = (batch, blocks * geometry.block_tokens, geometry.width)
        return self._memory.take(shape, geometry.dtype)


def shuffle(memory: Any, used: int, order: Sequence[int], step: int) -> None:
    """memory[n] becomes memory[order[n]], over the first `used` tokens, `step` at a time: so that
    it needs no second memory of its size."""
    for begin in range(0, used, step):
        part = memory[:, begin : min(used, begin + step)]
        part.copy_(part[list(order)])
