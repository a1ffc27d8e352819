"""A ranking that takes a chain at once, a column at a time: a loop would be most of a store."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from onggi_core.policy.ranking import _FRESH_MAX, _RESIDENT, Ranking


class ChainRanking(Ranking):
    def insert_all(
        self, blocks: Sequence[int], parents: Sequence[int], group: int, use: int, step: int = 0
    ) -> None:
        """As `insert` of blocks that are not here, in order; each one's use is `step` above that of
        the one before. A range of blocks is done a column at a time, if none has children yet."""
        if not blocks:
            return
        for top in (max(blocks), max(parents)):
            if top >= len(self._flags):
                self._grow(top + 1)
        begin, end, count = blocks[0], blocks[-1] + 1, len(blocks)
        if type(blocks) is not range or any(self._kids[begin:end]):
            for number, (block, parent) in enumerate(zip(blocks, parents, strict=True)):
                self.insert(block, parent, group, use + number * step)
            return
        self.now = use + (count - 1) * step
        uses = range(use, use + count * step, step) if step else [use] * count
        self._parent[begin:end] = array("i", parents)
        self._use[begin:end] = array("q", uses)
        self._count[begin:end] = array("B", bytes(count))
        self._group[begin:end] = array("H", [group]) * count
        self._flags[begin:end] = array("B", [_RESIDENT]) * count
        self._blocks += count
        kids, flags = self._kids, self._flags
        for parent in parents:
            if parent >= 0:
                if not (kids[parent] or begin <= parent < end) and flags[parent] & _RESIDENT:
                    self._leaves -= 1
                kids[parent] += 1
        leaves = [block for block in blocks if not kids[block]]
        self._leaves += len(leaves)
        self._fresh += leaves
        if len(self._fresh) >= _FRESH_MAX:
            self._sort_fresh()
