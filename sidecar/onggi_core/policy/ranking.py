"""Leaf-first ranking: of the blocks in one tier, those that may go, sorted into classes.

A child is worth nothing without its parent, so only a leaf, a block without children here, may be
picked; once it goes its parent may be a leaf. What remains of a chain is always its beginning, and
a lookup's longest consecutive run is all that was kept of it.

Using a block is using all blocks before it, so it is enough to touch the last one of a run: a block
that goes hands its last use and its hits on to its parent. One touch a lookup, not one a block.

Leaves wait in one queue a class, the one used longest ago first. A class says how often a block was
asked for (policy.classes); a `Chooser` says which class gives up its head, and whether a new block
is worth it. So a policy is a rule between a handful of numbers, and another one can take over at
any moment without a rebuild.

Blocks are small dense ints that may be used again after removal. Everything about a block lies in
columns, some twenty bytes each; only leaves are in a queue.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from typing import Final

from onggi_core.index.ids import NOWHERE
from onggi_core.policy.choosers import BLOCK_BITS, EMPTY, Chooser
from onggi_core.policy.classes import CLASSES, COUNT_MAX, PROVEN

_BLOCK_MASK: Final = (1 << BLOCK_BITS) - 1

FRESH_MAX: Final = 4096
"""New blocks set aside before they are looked at: a chain that comes block by block is one leaf in
the end, not as many entries as it has blocks."""

_STEP: Final = 64
"""Columns grow by a sixteenth and this, so that growing is rare and little lies idle."""
LAST: Final = 1 << 63
"""Later than any use."""

_SLACK: Final = 64
"""Stale entries allowed in a queue beyond one a leaf before it is swept."""

RESIDENT: Final = 1
_HELD: Final = 2


class Ranking:
    """use: a number that never falls from one call to the next; a higher one is more recent.

    group: a small number for the size of a block's page, so that a victim of the right size can be
    asked for. Not thread-safe.
    """

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self._parent = array("i")
        self._kids = array("i")
        self._use = array("q")
        self._count = array("B")
        self._group = array("H")
        self._flags = array("B")
        self._queued = array("H")
        """The number of the queue that has the block's entry, from 1; 0: none has."""
        self._queues: list[list[int]] = [[]]
        """All queues, CLASSES of them in a row for each group; the first is nobody's."""
        self._first: dict[int, int] = {}
        """The number of each group's first queue."""
        self._fresh: list[int] = []
        self._blocks = 0
        self._leaves = 0
        self.proven = 0
        self.now = 0
        self.pace = 1.0

    def __len__(self) -> int:
        return self._blocks

    def __contains__(self, block: int) -> bool:
        return 0 <= block < len(self._flags) and bool(self._flags[block] & RESIDENT)

    def insert(self, block: int, parent: int, group: int, use: int, count: int = 0) -> None:
        """A block arrived, not held. Its parent need not be here, and may come later; NOWHERE if
        it has none. count: how often it was asked for before it came (policy.sights).

        A block that is here already stays as it is.
        """
        if block >= len(self._flags) or parent >= len(self._flags):
            self._grow(max(block, parent) + 1)
        if self._flags[block] & RESIDENT:
            return
        if parent == block or (self._kids[block] and self._leads_to(parent, block)):
            parent = NOWHERE  # a client's mistake: a ring would have no leaf and never go
        count = min(count, COUNT_MAX)
        self._parent[block] = parent
        self._use[block] = self.now = use
        self._count[block] = count
        self._group[block] = group
        self._flags[block] = RESIDENT
        self._blocks += 1
        if count >= PROVEN:
            self.proven += 1
        if not self._kids[block]:
            self._leaves += 1
        if parent != NOWHERE:
            if not self._kids[parent] and self._flags[parent] & RESIDENT:
                self._leaves -= 1
            self._kids[parent] += 1
        self._fresh.append(block)
        if len(self._fresh) >= FRESH_MAX:
            self._sort_fresh()
        self.chooser.arrived(count, self)

    def touch(self, block: int, use: int) -> None:
        """A block, and with it all before it, is of use now. Its place in the queue is mended when
        it comes up."""
        self._use[block] = self.now = use

    def hit(self, block: int, use: int) -> None:
        """As `touch`, and it counts: a request asked for the block and found it."""
        self._use[block] = self.now = use
        self._raise(block, self._count[block] + 1)

    def recall(self, block: int, count: int) -> None:
        """A block that came was asked for `count` times before; the chooser is not told."""
        self._raise(block, count)

    def hold(self, block: int) -> None:
        """A block is in use: not to be picked until released."""
        self._flags[block] |= _HELD

    def release(self, block: int) -> None:
        self._flags[block] &= ~_HELD
        if not self._kids[block]:  # most are not leaves, and a long run releases every block
            self._enqueue(block)

    def remove(self, block: int) -> None:
        """A block went. Its children, if any, stay and wait for it to come back."""
        assert self._flags[block] & RESIDENT, "only what is here can go"
        self._flags[block] = 0
        self._blocks -= 1
        count = self._count[block]
        if count >= PROVEN:
            self.proven -= 1
        if not self._kids[block]:
            self._leaves -= 1
        parent = self._parent[block]
        if parent == NOWHERE:
            return
        self._kids[parent] -= 1
        if self._use[block] > self._use[parent]:
            self._use[parent] = self._use[block]
        if not self._flags[parent] & RESIDENT:
            return
        self._raise(parent, count)
        if not self._kids[parent]:
            self._leaves += 1
            self._enqueue(parent)

    def coldest(self, group: int, before: int = LAST) -> int | None:
        """The leaf of this group to give up next, or None when none may go. Removes nothing: asked
        again it answers the same. before: only one that was last used earlier than that."""
        heads = self._heads(group, before)
        return heads[self.chooser.choose(heads, self)] & _BLOCK_MASK if heads else None

    def rival(self, group: int, count: int, before: int = LAST) -> int | None:
        """The leaf to give up for a block that was asked for `count` times, or None when none may
        go or the new block is worth less than it: then it is not admitted."""
        heads = self._heads(group, before)
        if not heads:
            return None
        number = self.chooser.choose(heads, self)
        if not self.chooser.admits(min(count, COUNT_MAX), number, heads[number], self):
            return None
        return heads[number] & _BLOCK_MASK

    def run(self, blocks: Sequence[int]) -> int:
        """How many of the first of these are here, up to the first that is not."""
        flags = self._flags
        for number, block in enumerate(blocks):
            if block >= len(flags) or not flags[block] & RESIDENT:
                return number
        return len(blocks)

    def count_of(self, block: int) -> int:
        return self._count[block]

    def last_use(self, block: int) -> int:
        return self._use[block]

    def _heads(self, group: int, before: int) -> list[int]:
        """The head of each class, EMPTY where none may go; an empty list where that is all."""
        if self._fresh:
            self._sort_fresh()
        first = self._first.get(group)
        if first is None:
            return []
        queues, bound = self._queues, before << BLOCK_BITS
        heads = [EMPTY] * CLASSES
        found = False
        for number in range(CLASSES):
            if queues[first + number]:
                head = self._head(first + number)
                if head < bound:
                    heads[number] = head
                    found = True
        return heads if found else []

    def _grow(self, blocks: int) -> None:
        more = max(blocks, len(self._flags) * 17 // 16 + _STEP) - len(self._flags)
        numbers = self._parent, self._kids, self._use, self._count
        for column in (*numbers, self._group, self._flags, self._queued):
            column.frombytes(bytes(more * column.itemsize))

    def _leads_to(self, block: int, above: int) -> bool:
        """Whether `above` is among the blocks before `block`. Asked only for a block that came
        after its children."""
        while block != NOWHERE and self._flags[block] & RESIDENT:
            if self._parent[block] == above:
                return True
            block = self._parent[block]
        return False

    def _raise(self, block: int, count: int) -> None:
        """A block is found to be asked for more often than was known."""
        before = self._count[block]
        if before < min(count, COUNT_MAX):
            self._count[block] = min(count, COUNT_MAX)
            self._prove(block, before)
            if not self._kids[block]:
                self._enqueue(block)

    def _prove(self, block: int, before: int) -> None:
        """A block was asked for again, and so were all before it: each is walked over once in its
        time here. One that comes after a proven child is proven when that goes, no leaf before."""
        if before >= PROVEN:
            return
        self.proven += 1
        above = self._parent[block]
        while above != NOWHERE and self._flags[above] & RESIDENT and self._count[above] < PROVEN:
            self._count[above] = PROVEN
            self.proven += 1
            above = self._parent[above]

    def _sort_fresh(self) -> None:
        for block in self._fresh:
            if not self._kids[block]:
                self._enqueue(block)
        self._fresh.clear()

    def _enqueue(self, block: int) -> None:
        """A leaf joins the queue of its class, if it may be picked and is not there. An entry it
        has in another class's queue is void from now on."""
        if self._flags[block] != RESIDENT:
            return
        first = self._first.get(self._group[block])
        if first is None:
            first = self._first[self._group[block]] = len(self._queues)
            self._queues += [[] for _ in range(CLASSES)]
        number = first + self._count[block]
        if self._queued[block] == number:
            return
        self._queued[block] = number
        queue = self._queues[number]
        heapq.heappush(queue, self._use[block] << BLOCK_BITS | block)
        if len(queue) > 2 * self._leaves + _SLACK:
            self._sweep(number)

    def _head(self, number: int) -> int:
        """The entry of the leaf used longest ago, after what is void before it was dropped."""
        queue = self._queues[number]
        while queue:
            entry = queue[0]
            block = entry & _BLOCK_MASK
            now = self._use[block] << BLOCK_BITS | block
            if self._queued[block] != number:
                heapq.heappop(queue)
            elif self._flags[block] != RESIDENT or self._kids[block]:
                heapq.heappop(queue)
                self._queued[block] = 0
            elif now != entry:
                heapq.heapreplace(queue, now)
            else:
                return entry
        return EMPTY

    def _sweep(self, number: int) -> None:
        """Drops what is void from a queue."""
        kept = []
        for block in {entry & _BLOCK_MASK for entry in self._queues[number]}:
            if self._queued[block] != number:
                continue
            if self._flags[block] == RESIDENT and not self._kids[block]:
                kept.append(self._use[block] << BLOCK_BITS | block)
            else:
                self._queued[block] = 0
        heapq.heapify(kept)
        self._queues[number] = kept
