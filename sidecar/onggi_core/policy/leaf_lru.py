"""Least recently used, leaves first: a child is worth nothing without its parent.

Ranks the blocks of one space in one tier. Only a leaf, a block without children here, may be
picked; once it goes its parent may be a leaf. So what remains of a chain is always its beginning,
and a lookup's longest consecutive run is all that was kept of it.

Using a block is using all blocks before it, so it is enough to touch the last one of a run: a block
that goes hands its last use on to its parent. One touch a lookup, instead of one a block.
"""

from __future__ import annotations

import heapq
from typing import Final

_SLACK: Final = 64
"""Stale queue entries allowed beyond one a block before the queue is rebuilt."""


_NOBODY: Final = b""
"""No block's key."""


class _Node:
    __slots__ = ("held", "kids", "parent", "queued", "resident", "use")

    def __init__(self) -> None:
        self.parent: bytes | None = None
        self.kids = 0
        self.use = 0
        self.held = False
        self.queued = False
        self.resident = False


class LeafFirstLru:
    """use: a number that never falls from one call to the next; a higher one is more recent."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, _Node] = {}
        self._queue: list[tuple[int, bytes]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        node = self._nodes.get(key)
        return node is not None and node.resident

    def insert(self, key: bytes, parent: bytes, use: int) -> None:
        """A block arrived. Its parent need not be here."""
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _Node()
        if node.resident:
            return
        if parent == key or (node.kids and self._leads_to(parent, key)):
            parent = _NOBODY  # a client's mistake: a ring would have no leaf and never go
        node.resident = True
        node.held = False
        node.use = use
        node.parent = parent
        self._count += 1
        above = self._nodes.get(parent)
        if above is None:
            above = self._nodes[parent] = _Node()
        above.kids += 1
        self._enqueue(key, node)

    def _leads_to(self, key: bytes, above: bytes) -> bool:
        """Whether `above` is among the blocks before `key`. Asked only for a block that came after
        its children."""
        node = self._nodes.get(key)
        while node is not None and node.parent is not None and node.resident:
            if node.parent == above:
                return True
            node = self._nodes.get(node.parent)
        return False

    def touch(self, key: bytes, use: int) -> None:
        """A block, and with it all before it, was asked for. Its place in the queue is mended when
        it comes up."""
        node = self._nodes.get(key)
        if node is not None:
            node.use = use

    def hold(self, key: bytes) -> None:
        """A block is in use: not to be picked until released."""
        self._nodes[key].held = True

    def release(self, key: bytes) -> None:
        node = self._nodes[key]
        node.held = False
        if not node.kids:  # most are not leaves, and a long run releases every block
            self._enqueue(key, node)

    def remove(self, key: bytes) -> None:
        """A block went. Its children, if any, stay and wait for it to come back."""
        node = self._nodes[key]
        node.resident = False
        self._count -= 1
        parent = node.parent
        if not node.kids:
            del self._nodes[key]
        if parent is not None:
            above = self._nodes[parent]
            above.kids -= 1
            above.use = max(above.use, node.use)
            if above.resident:
                self._enqueue(parent, above)
            elif not above.kids:
                del self._nodes[parent]
        if len(self._queue) > 2 * len(self._nodes) + _SLACK:
            self._rebuild()

    def coldest(self) -> tuple[int, bytes] | None:
        """The leaf to give up next, with its last use, or None when none may go. Removes nothing:
        asked again it answers the same."""
        queue = self._queue
        while queue:
            use, key = queue[0]
            node = self._nodes.get(key)
            if node is None or not node.resident or node.held or node.kids:
                heapq.heappop(queue)
                if node is not None:
                    node.queued = False
            elif node.use != use:
                heapq.heapreplace(queue, (node.use, key))
            else:
                return use, key
        return None

    def last_use(self, key: bytes) -> int:
        return self._nodes[key].use

    def _enqueue(self, key: bytes, node: _Node) -> None:
        if node.resident and not node.queued and not node.held and not node.kids:
            node.queued = True
            heapq.heappush(self._queue, (node.use, key))

    def _rebuild(self) -> None:
        for node in self._nodes.values():
            node.queued = False
        self._queue = []
        for key, node in self._nodes.items():
            self._enqueue(key, node)
