"""Which blocks are known, what each stands on, and how far it is from the start of its prompt.

A block is a small number. It exists while a tier holds a page of it, or while blocks that follow it
exist: then it is a name alone, so that its children find it when it comes back.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from onggi_core.errors import BadRequest
from onggi_core.identity import DIGEST_BYTES, ROOT
from onggi_core.index.ids import NOWHERE, as_run
from onggi_core.index.pages import Pages

GROW: Final = 4096
"""Numbers made at once."""
DEPTH_MAX: Final = 0xFFFF
"""Where depth stops counting: a million tokens of 16-token blocks."""
RING_WALK_MAX: Final = 256
"""A block that comes after its children might, by a client's mistake, follow one of them. Its line
is walked up this far; one that is longer is taken as not its own, and the block as a first one."""

UNREAD: Final = 1
"""Promoted from disk and not loaded since: the first load counts as a disk hit."""
HINTED: Final = 2
"""Promoted on a hint, and nobody has loaded or waited for it yet."""

_NAMELESS: Final = b""


class Blocks:
    """Columns by block, and a dict of keys a space. host, disk: the pages of each tier."""

    def __init__(self) -> None:
        self.host = Pages()
        self.disk = Pages()
        self.ids: list[dict[bytes, int]] = []
        """Key -> block, by space."""
        self.keys: list[bytes] = []
        self.space = array("H")
        self.parent = array("i")
        self.kids = array("i")
        """Known blocks that follow it."""
        self.depth = array("H")
        """Known blocks before it."""
        self.flags = bytearray()
        self.checksums = bytearray()
        """xxh3-128 of the bytes on disk, while the disk tier holds them."""
        self._free: list[int] = []
        self._used = 0
        """Numbers given so far, free ones included."""

    # ---- making and forgetting

    def new(self, space: int, key: bytes, parent: bytes) -> int:
        """The block of a key that no tier holds, with its parent; the number of a name that is
        waited for already is kept."""
        ids = self.ids[space]
        block = ids.get(key)
        if block is None:
            block = self._add(space, key)
        if self.parent[block] == NOWHERE and parent not in (ROOT, key):
            above = self.name(space, parent)
            if not self.kids[block] or not self.leads_to(above, block):
                self._follow(block, above)
        return block

    def new_chain(self, space: int, keys: Sequence[bytes], parent: bytes) -> Sequence[int]:
        """Blocks of keys that are all different and unknown, each following the one before it.
        parent: none of them."""
        ids = self.ids[space]
        above = NOWHERE if parent == ROOT else self.name(space, parent)
        count = len(keys)
        blocks = as_run(self._numbers(count))
        ids.update(zip(keys, blocks, strict=True))
        below = 0 if above == NOWHERE else self.depth[above] + 1
        if above != NOWHERE:
            self.kids[above] += 1
        depths: Sequence[int] = range(below, below + count)
        if below + count > DEPTH_MAX:
            depths = [min(depth, DEPTH_MAX) for depth in depths]
        if type(blocks) is not range:
            for key, block, depth in zip(keys, blocks, depths, strict=True):
                self._set(block, space, key, above, depth)
                self.kids[block] = 1
                above = block
            self.kids[above] = 0
            return blocks
        begin, end = blocks.start, blocks.stop
        self.keys[begin:end] = keys
        self.space[begin:end] = array("H", [space]) * count
        self.parent[begin:end] = array("i", (above, *range(begin, end - 1)))
        self.kids[begin:end] = array("i", (*repeat(1, count - 1), 0))
        self.depth[begin:end] = array("H", depths)
        return blocks

    def name(self, space: int, key: bytes) -> int:
        """The number of a block that so far only its children speak of."""
        block = self.ids[space].get(key)
        return self._add(space, key) if block is None else block

    def forget_if_nowhere(self, block: int) -> None:
        """Drops what no tier holds and nothing follows, if that is not done yet. A block that
        others follow stays as a name, which follows nothing, so that names never outnumber their
        children."""
        while not (self.host.states[block] or self.disk.states[block]) and self.keys[block]:
            above = self.parent[block]
            if above != NOWHERE:
                self.parent[block] = NOWHERE
                self.kids[above] -= 1
            if not self.kids[block]:
                self._remove(block)
            if above == NOWHERE or self.kids[above]:
                return
            block = above

    def forget_tail(self, blocks: range) -> None:
        """As forget_if_nowhere of each, the last one first."""
        first, end = blocks.start, blocks.stop
        inner = end - first - 1
        if (
            any(self.disk.states[first:end])
            or any(self.host.states[first:end])
            or self.kids[end - 1]
            or self.kids[first : end - 1] != array("i", [1]) * inner
            or self.parent[first + 1 : end] != array("i", range(first, end - 1))
        ):
            for block in reversed(blocks):
                self.forget_if_nowhere(block)
            return
        ids = self.ids[self.space[first]]
        deque(map(ids.__delitem__, self.keys[first + 1 : end]), maxlen=0)  # a loop, but in C
        self.keys[first + 1 : end] = repeat(_NAMELESS, inner)
        self.parent[first + 1 : end] = array("i", [NOWHERE]) * inner
        self.kids[first:end] = array("i", bytes((inner + 1) * self.kids.itemsize))
        self.flags[first + 1 : end] = bytes(inner)
        self._free.extend(range(end - 1, first, -1))
        self.forget_if_nowhere(first)

    # ---- what is known of one

    def parent_key(self, block: int) -> bytes:
        above = self.parent[block]
        return ROOT if above == NOWHERE else self.keys[above]

    def parent_keys_of(self, blocks: Sequence[int]) -> list[bytes]:
        if type(blocks) is range and blocks:
            inner = range(blocks.start, blocks.stop - 1)
            if self.parent[blocks.start + 1 : blocks.stop] == array("i", inner):
                return [self.parent_key(blocks.start), *self.keys_of(inner)]
        return list(map(self.parent_key, blocks))

    def parents_of(self, blocks: Sequence[int]) -> Sequence[int]:
        if type(blocks) is range:
            return self.parent[blocks.start : blocks.stop]
        return [self.parent[block] for block in blocks]

    def keys_of(self, blocks: Sequence[int]) -> list[bytes]:
        if type(blocks) is range:
            return self.keys[blocks.start : blocks.stop]
        return list(map(self.keys.__getitem__, blocks))

    def flags_of(self, blocks: Sequence[int]) -> bytes | bytearray:
        if type(blocks) is range:
            return self.flags[blocks.start : blocks.stop]
        return bytes(map(self.flags.__getitem__, blocks))

    def checksum(self, block: int) -> bytes:
        begin = block * DIGEST_BYTES
        return bytes(self.checksums[begin : begin + DIGEST_BYTES])

    def set_checksums(self, blocks: Sequence[int], checksums: bytes) -> None:
        """checksums: of all of them, one after the other."""
        if len(checksums) != len(blocks) * DIGEST_BYTES:
            raise BadRequest("checksums", checksums, f"a page's has {DIGEST_BYTES} bytes")
        if type(blocks) is range:
            begin = blocks.start * DIGEST_BYTES
            self.checksums[begin : begin + len(checksums)] = checksums
            return
        for row, block in enumerate(blocks):
            at, begin = row * DIGEST_BYTES, block * DIGEST_BYTES
            self.checksums[begin : begin + DIGEST_BYTES] = checksums[at : at + DIGEST_BYTES]

    def leads_to(self, block: int, above: int) -> bool:
        """Whether `above` is among the blocks before `block`, or may be (RING_WALK_MAX)."""
        for _ in range(RING_WALK_MAX):
            if block == above:
                return True
            if block == NOWHERE:
                return False
            block = self.parent[block]
        return block != NOWHERE

    def __len__(self) -> int:
        """Blocks known, names alone included."""
        return self._used - len(self._free)

    # ---- numbers

    def fresh_numbers(self, count: int) -> range:
        """Numbers in a row that were never given."""
        missing = self._used + count - len(self.keys)
        if missing > 0:
            self._grow(missing if missing > GROW else GROW)
        begin = self._used
        self._used += count
        return range(begin, begin + count)

    def give_back_numbers(self, numbers: range) -> None:
        """Numbers of fresh_numbers that were not used."""
        self._free.extend(reversed(numbers))

    def _numbers(self, count: int) -> Sequence[int]:
        """Those given back last come first: a chain that went from its end on leaves them in a
        row for the next one."""
        if len(self._free) < count:
            return self.fresh_numbers(count)
        taken = self._free[-count:]
        del self._free[-count:]
        taken.reverse()
        return taken

    def _grow(self, count: int) -> None:
        self.keys += repeat(_NAMELESS, count)
        for column in (self.space, self.kids, self.depth):
            column.frombytes(bytes(count * column.itemsize))
        self.parent.extend(array("i", [NOWHERE]) * count)
        self.flags += bytes(count)
        self.checksums += bytes(count * DIGEST_BYTES)
        self.host.grow(count)
        self.disk.grow(count)

    def _add(self, space: int, key: bytes) -> int:
        (block,) = self._numbers(1)
        self.ids[space][key] = block
        self._set(block, space, key, NOWHERE, 0)
        return block

    def _set(self, block: int, space: int, key: bytes, above: int, depth: int) -> None:
        self.keys[block] = key
        self.space[block] = space
        self.parent[block] = above
        self.kids[block] = 0
        self.depth[block] = depth

    def _follow(self, block: int, above: int) -> None:
        self.parent[block] = above
        self.kids[above] += 1
        self.depth[block] = min(self.depth[above] + 1, DEPTH_MAX)

    def _remove(self, block: int) -> None:
        del self.ids[self.space[block]][self.keys[block]]
        self.keys[block] = _NAMELESS
        self.flags[block] = 0
        self._free.append(block)
