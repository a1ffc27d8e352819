"""A ranking that takes many blocks at once, a column at a time: a loop would be most of a store."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from onggi_core.index.counting import in_a_row
from onggi_core.index.ids import NOWHERE
from onggi_core.policy.classes import PROVEN
from onggi_core.policy.ranking import FRESH_MAX, RESIDENT, Ranking


class Past(NamedTuple):
    """Of blocks of an earlier life: when each was used last, and how often it was asked for."""

    uses: Sequence[int]
    counts: bytes | bytearray


class ChainRanking(Ranking):
    def insert_chain(self, blocks: range, parent: int, group: int, use: int) -> None:
        """As `insert` of blocks that are not here, each following the one before it."""
        begin, end, count = blocks.start, blocks.stop, len(blocks)
        self._reach(max(end - 1, parent))
        if any(self._kids[begin:end]):
            for block in blocks:
                self.insert(block, parent, group, use)
                parent = block
            return
        above = array("i", (parent,)) + in_a_row(begin, count - 1)
        self._set(blocks, above, group, array("q", [use]) * count)
        self._kids[begin:end] = array("i", [1]) * count
        self._kids[end - 1] = 0
        self._follow(parent)
        self._leaves += 1
        self._set_aside([end - 1])

    def insert_range(
        self,
        blocks: range,
        heads: Sequence[int],
        parents: array[int],
        kids: array[int],
        group: int,
        past: Past,
    ) -> None:
        """As `insert` and `recall` of blocks that are not here, in order, the oldest use first.
        heads: those whose parent is not the number before theirs. kids: how many of the blocks
        known follow each; their parents form no ring."""
        begin, end = blocks.start, blocks.stop
        above = [parents[head - begin] for head in heads]
        self._reach(max(end - 1, *above))
        if any(self._kids[begin:end]):
            for block, parent, use, count in zip(blocks, parents, *past, strict=True):
                self.insert(block, parent, group, use)
                self.recall(block, count)
            return
        self._set(blocks, parents, group, array("q", past.uses))
        self._count[begin:end] = array("B", past.counts)
        self.proven += len(past.counts) - past.counts.count(0)
        self._kids[begin:end] = kids
        for parent in above:
            if not begin <= parent < end:
                self._follow(parent)
        last = (*(head - 1 for head in heads[1:]), end - 1)
        leaves = [block for block in last if not kids[block - begin]]
        self._leaves += len(leaves)
        self._set_aside(leaves)

    def touch_run(self, blocks: Sequence[int], use: int) -> None:
        """As `touch` of each of these, for which the last one is enough where each follows the one
        before it here. Where a client names others, or said before that they follow something
        else, each is touched that nothing behind it stands on."""
        parents, last = self._parent, blocks[-1]
        in_order = type(blocks) is range and (
            parents[blocks[0] + 1 : last + 1] == in_a_row(blocks[0], len(blocks) - 1)
        )
        if not in_order:
            for above, block in pairwise(blocks):
                if parents[block] != above:
                    self.touch(above, use)
        self.touch(last, use)

    def counts_of(self, blocks: Sequence[int]) -> bytes:
        """How often each was asked for, a byte each; 0 of those that were never here."""
        counts = self._count
        if type(blocks) is range and blocks.stop <= len(counts):
            return counts[blocks.start : blocks.stop].tobytes()
        return bytes([counts[block] if block < len(counts) else 0 for block in blocks])

    def tail(self, leaf: int, most: int) -> range:
        """The blocks that would go after `leaf` if one at a time went: the chain that ends in it,
        as long as nothing else follows its blocks, they may go, and none of them is of more use.
        Their numbers are in a row, the leaf's is the last; at most `most`."""
        parents, kids, flags = self._parent, self._kids, self._flags
        uses, counts, groups = self._use, self._count, self._group
        use, count, group = uses[leaf], counts[leaf], groups[leaf]
        first = leaf
        while leaf - first < most - 1:
            above = parents[first]
            if (
                above != first - 1
                or above < 0
                or kids[above] != 1
                or flags[above] != RESIDENT
                or uses[above] > use
                or counts[above] > count
                or groups[above] != group
            ):
                break
            first = above
        return range(first, leaf + 1)

    def remove_tail(self, blocks: range) -> None:
        """As `remove` of each block of a `tail`, the last one first."""
        first, leaf = blocks.start, blocks.stop - 1
        if first == leaf:
            self.remove(leaf)
            return
        inner = len(blocks) - 1
        self.proven -= inner - sum(map(PROVEN.__gt__, self._count[first + 1 : leaf + 1]))
        self._use[first] = self._use[leaf]
        count, before = self._count[leaf], self._count[first]
        if count > before:
            self._count[first] = count
            self._prove(first, before)
        self._flags[first + 1 : leaf + 1] = array("B", bytes(inner))
        self._kids[first:leaf] = array("i", bytes(inner * self._kids.itemsize))
        self._blocks -= inner
        self.remove(first)

    def _reach(self, top: int) -> None:
        if top >= len(self._flags):
            self._grow(top + 1)

    def _set(self, blocks: range, above: array[int], group: int, uses: array[int]) -> None:
        begin, end, count = blocks.start, blocks.stop, len(blocks)
        self._parent[begin:end] = above
        self._use[begin:end] = uses
        self._count[begin:end] = array("B", bytes(count))
        self._group[begin:end] = array("H", [group]) * count
        self._flags[begin:end] = array("B", [RESIDENT]) * count
        self._blocks += count
        self.now = max(self.now, uses[-1])

    def _follow(self, parent: int) -> None:
        """One more block follows `parent`, which may be a leaf until now, or not here."""
        if parent == NOWHERE:
            return
        if not self._kids[parent] and self._flags[parent] & RESIDENT:
            self._leaves -= 1
        self._kids[parent] += 1

    def _set_aside(self, leaves: list[int]) -> None:
        self._fresh += leaves
        if len(self._fresh) >= FRESH_MAX:
            self._sort_fresh()
