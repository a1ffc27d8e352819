"""Which blocks are known, what each stands on, and how far it is from the start of its prompt.

A block is a small number. It exists while a tier holds a page of it, or while blocks that follow it
exist: then it is a name alone, so that its children find it when it comes back.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from onggi_core.board.beginnings import Beginnings
from onggi_core.errors import BadRequest
from onggi_core.identity import DIGEST_BYTES, ROOT
from onggi_core.index.counting import in_a_row
from onggi_core.index.digests import cut
from onggi_core.index.ids import NOWHERE, as_run
from onggi_core.index.keytable import NO_SPACE, KeyTable
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


class Blocks:
    """Columns by block, and a table of keys a space. host, disk: the pages of each tier."""

    def __init__(self, beginnings: Beginnings | None = None) -> None:
        """beginnings: what is told of blocks that follow none; None: nobody is."""
        self.beginnings = beginnings or Beginnings(memoryview(bytearray(1)))
        self.host = Pages()
        self.disk = Pages()
        self.tables: list[KeyTable] = []
        """Key -> block, by space."""
        self.keys = bytearray()
        """16 bytes a block."""
        self.space = array("H")
        """NO_SPACE where a number is nobody's."""
        self.parent = array("i")
        self.kids = array("i")
        """Known blocks that follow it."""
        self.depth = array("H")
        """Known blocks before it."""
        self.flags = bytearray()
        self.checksums = bytearray()
        """xxh3-128 of the bytes on disk, while the disk tier holds them."""
        self._windows: list[int] = []
        self._free: list[int] = []
        self._used = 0
        """Numbers given so far, free ones included."""

    # ---- making and forgetting

    def table_for(self, space: int) -> KeyTable:
        """An empty table for the next space, or for one that takes over another's number."""
        table = KeyTable(space, self.keys, self.space, self._windows)
        self.tables[space : space + 1] = [table]
        return table

    def new(self, space: int, key: bytes, parent: bytes) -> int:
        """The block of a key that no tier holds, with its parent; the number of a name that is
        waited for already is kept."""
        block = self.name(space, key)
        if self.parent[block] == NOWHERE and parent not in (ROOT, key):
            above = self.name(space, parent)
            if not self.kids[block] or not self.leads_to(above, block):
                self._follow(block, above)
        if parent == ROOT or self.parent[block] == NOWHERE:
            self.beginnings.add(block, self.keys)
        return block

    def new_chain(self, space: int, keys: Sequence[bytes], parent: bytes) -> Sequence[int] | None:
        """Blocks of keys that follow each other, the first one `parent`; None, with nothing made,
        where a key is known or comes twice."""
        count = len(keys)
        above = NOWHERE if parent == ROOT else self.name(space, parent)
        blocks = as_run(self._numbers(count))
        self._name_all(blocks, space, keys)
        if not self.tables[space].add(keys, blocks):
            self.give_back_numbers(blocks)
            if above != NOWHERE:
                self.forget_if_nowhere(above)
            return None
        below = 0 if above == NOWHERE else self.depth[above] + 1
        if above != NOWHERE:
            self.kids[above] += 1
        else:
            self.beginnings.add(blocks[0], self.keys)
        depths: Sequence[int] = range(below, below + count)
        if below + count > DEPTH_MAX:
            depths = [min(depth, DEPTH_MAX) for depth in depths]
        if type(blocks) is not range:
            for block, depth in zip(blocks, depths, strict=True):
                self._set(block, above, depth)
                self.kids[block] = 1
                above = block
            self.kids[above] = 0
            return blocks
        begin, end = blocks.start, blocks.stop
        self.parent[begin] = above
        self.parent[begin + 1 : end] = in_a_row(begin, count - 1)
        self.kids[begin:end] = array("i", [1]) * count
        self.kids[end - 1] = 0
        self.depth[begin:end] = array("H", depths)
        return blocks

    def name(self, space: int, key: bytes) -> int:
        """The number of a block that so far perhaps only its children speak of."""
        block = self.tables[space].find(key)
        return self._add(space, key) if block is None else block

    def forget_if_nowhere(self, block: int) -> None:
        """Drops what no tier holds and nothing follows, if that is not done yet. A block that
        others follow stays as a name, which follows nothing, so that names never outnumber their
        children."""
        host, disk, space = self.host.states, self.disk.states, self.space
        while not (host[block] or disk[block]) and space[block] != NO_SPACE:
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
            or self.parent[first + 1 : end] != in_a_row(first, inner)
        ):
            for block in reversed(blocks):
                self.forget_if_nowhere(block)
            return
        self.tables[self.space[first]].remove(range(first + 1, end))
        self.beginnings.remove(range(first + 1, end), self.keys)
        self.space[first + 1 : end] = array("H", [NO_SPACE]) * inner
        self.parent[first + 1 : end] = array("i", [NOWHERE]) * inner
        self.kids[first:end] = array("i", bytes((inner + 1) * self.kids.itemsize))
        self.flags[first + 1 : end] = bytes(inner)
        self._free.extend(range(end - 1, first, -1))
        self.forget_if_nowhere(first)

    # ---- what is known of one

    def key(self, block: int) -> bytes:
        begin = block * DIGEST_BYTES
        return bytes(self.keys[begin : begin + DIGEST_BYTES])

    def keys_of(self, blocks: Sequence[int]) -> list[bytes]:
        if type(blocks) is range:
            return list(cut(self.keys[blocks.start * DIGEST_BYTES : blocks.stop * DIGEST_BYTES]))
        return [self.key(block) for block in blocks]

    def parent_key(self, block: int) -> bytes:
        above = self.parent[block]
        return ROOT if above == NOWHERE else self.key(above)

    def parent_keys_of(self, blocks: Sequence[int]) -> list[bytes]:
        if type(blocks) is range and blocks:
            inner = range(blocks.start, blocks.stop - 1)
            if self.parent[inner.start + 1 : inner.stop + 1] == in_a_row(inner.start, len(inner)):
                return [self.parent_key(blocks.start), *self.keys_of(inner)]
        return list(map(self.parent_key, blocks))

    def flags_of(self, blocks: Sequence[int]) -> bytes | bytearray:
        if type(blocks) is range:
            return self.flags[blocks.start : blocks.stop]
        return bytes(map(self.flags.__getitem__, blocks))

    def checksum(self, block: int) -> bytes:
        begin = block * DIGEST_BYTES
        return bytes(self.checksums[begin : begin + DIGEST_BYTES])

    def set_checksums(self, blocks: Sequence[int], checksums: bytes | bytearray) -> None:
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
        missing = self._used + count - len(self.space)
        if missing > 0:
            self._grow(missing if missing > GROW else GROW)
        begin = self._used
        self._used += count
        return range(begin, begin + count)

    def give_back_numbers(self, numbers: Sequence[int]) -> None:
        """Numbers that were named, but not used."""
        if type(numbers) is range:
            self.space[numbers.start : numbers.stop] = array("H", [NO_SPACE]) * len(numbers)
            if numbers.stop == self._used:
                self._used = numbers.start
                return
        else:
            for block in numbers:
                self.space[block] = NO_SPACE
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
        self.keys += bytes(count * DIGEST_BYTES)
        self.space.extend(array("H", [NO_SPACE]) * count)
        for column in (self.kids, self.depth):
            column.frombytes(bytes(count * column.itemsize))
        self.parent.extend(array("i", [NOWHERE]) * count)
        self.flags += bytes(count)
        self.checksums += bytes(count * DIGEST_BYTES)
        self.host.grow(count)
        self.disk.grow(count)

    def _add(self, space: int, key: bytes) -> int:
        (block,) = blocks = self._numbers(1)
        self._name_all(blocks, space, (key,))
        self.tables[space].add((key,), blocks)
        self._set(block, NOWHERE, 0)
        return block

    def _name_all(self, blocks: Sequence[int], space: int, keys: Sequence[bytes]) -> None:
        raw = b"".join(keys)
        if len(raw) != len(blocks) * DIGEST_BYTES:
            raise BadRequest("keys", len(raw), f"each has {DIGEST_BYTES} bytes")
        if type(blocks) is range:
            begin, end = blocks.start, blocks.stop
            self.keys[begin * DIGEST_BYTES : end * DIGEST_BYTES] = raw
            self.space[begin:end] = array("H", [space]) * len(blocks)
            return
        for block, key in zip(blocks, keys, strict=True):
            begin = block * DIGEST_BYTES
            self.keys[begin : begin + DIGEST_BYTES] = key
            self.space[block] = space

    def _set(self, block: int, above: int, depth: int) -> None:
        self.parent[block] = above
        self.kids[block] = 0
        self.depth[block] = depth

    def _follow(self, block: int, above: int) -> None:
        self.parent[block] = above
        self.kids[above] += 1
        self.depth[block] = min(self.depth[above] + 1, DEPTH_MAX)

    def _remove(self, block: int) -> None:
        self.tables[self.space[block]].remove((block,))
        self.beginnings.remove(range(block, block + 1), self.keys)
        self.space[block] = NO_SPACE
        self.flags[block] = 0
        self._free.append(block)
