"""From a key to its block, in half of what a dict of keys and numbers takes.

A dict's entry of a 16-byte key is three objects. Here the keys lie in a column of the index, the
dict has 56 bits of a key, and what it leads to is where to look: the first of WINDOW numbers that
share one object. A key whose bits another has already is in a dict of its own: keys are prefix
hashes, so that is a client's mistake, and it is answered as exactly as the rest.

A chain has numbers in a row, and its keys lie in a row in the column: only the first of a run is
looked for, the others are compared with the column at once.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, islice, repeat
from operator import not_
from sys import byteorder
from typing import Final

from onggi_core.identity import DIGEST_BYTES
from onggi_core.index.digests import common, cut

NO_SPACE: Final = 0xFFFF
"""In the column of spaces: the number is nobody's."""

BITS: Final = (1 << 56) - 1
"""Of a key's first eight bytes: an int of 60 bits takes 32 bytes, one of 61 takes 48. Seven bytes,
so that one assignment cuts the rest off many keys."""
WINDOW_BITS: Final = 6
WINDOW: Final = 1 << WINDOW_BITS
"""Keys searched by one call: a kilobyte, a tenth of a microsecond."""
_WORD_BYTES: Final = 8
_TOP_BYTE: Final = _WORD_BYTES - 1 if byteorder == "little" else 0
_WINDOW_BYTES: Final = WINDOW * DIGEST_BYTES
_COMPARED: Final = 128
"""Keys of a run compared at once, at first: most prompts of a request are no longer."""


class KeyTable:
    """The keys of one space. keys, spaces: columns of the index, 16 bytes and a number a block.
    The columns say more than the table: a block counts if its number is of this space there."""

    __slots__ = ("_keys", "_places", "_spaces", "_twins", "_windows", "number")

    def __init__(
        self, number: int, keys: bytearray, spaces: array[int], windows: list[int]
    ) -> None:
        """windows: grown here, shared by all tables: the first number of each window."""
        self.number = number
        self._keys = keys
        self._spaces = spaces
        self._windows = windows
        self._places: dict[int, int] = {}
        """Bits of a key -> the first number of the window in which its block is."""
        self._twins: dict[bytes, int] = {}
        """Key -> block, of keys whose bits another one had before."""

    def __len__(self) -> int:
        return len(self._places) + len(self._twins)

    def add(self, keys: Sequence[bytes], blocks: Sequence[int]) -> bool:
        """Blocks whose keys and space are in the columns already. False, with none added, where a
        key is known or comes twice."""
        places = self._places
        if self._twins:
            return self._add_each(keys, blocks)
        bits = _bits(self._raw(blocks)).tolist()  # all at first: made one by one they cost twice
        new = dict(zip(bits, self._first(blocks), strict=True))
        if len(new) < len(blocks) or not places.keys().isdisjoint(new.keys()):
            return self._add_each(keys, blocks)
        if places:
            places.update(new)
        else:
            self._places = new
        return True

    def remove(self, blocks: Sequence[int]) -> None:
        """Before they are struck off in the columns."""
        raw = self._raw(blocks)
        bits: Iterable[int] = _bits(raw)
        if self._twins:
            twins = [self._twins.pop(key, None) is not None for key in cut(raw)]
            bits = compress(bits, map(not_, twins))
        deque(map(self._places.__delitem__, bits), maxlen=0)  # a loop, but in C

    def find(self, key: bytes) -> int | None:
        first = self._places.get(_bits_of(key))
        if first is not None:
            block = self._search(key, first)
            if block is not None:
                return block
        return self._twins.get(key)

    def known(self, keys: Sequence[bytes]) -> Sequence[int]:
        """The blocks of the leading keys that have one."""
        first = self.find(keys[0]) if keys else None
        if first is None:
            return ()
        raw, count = b"".join(keys), len(keys)
        run = self._run(first, raw, 0)
        if run == count:
            return range(first, first + count)
        found = [*range(first, first + run)]
        while len(found) < count:
            at = len(found)
            block = self.find(keys[at])
            if block is None:
                break
            found.append(block)
            begin = (block + 1) * DIGEST_BYTES
            if at + 1 < count and self._keys[begin : begin + DIGEST_BYTES] == keys[at + 1]:
                run = self._run(block + 1, raw, at + 1)
                found += range(block + 1, block + 1 + run)
        return found

    # ---- inside

    def _first(self, blocks: Sequence[int]) -> Iterator[int]:
        """The first number of each block's window: one object a window, whoever asks."""
        windows = self._windows
        if type(blocks) is not range:
            while len(windows) <= max(blocks) >> WINDOW_BITS:
                windows.append(len(windows) << WINDOW_BITS)
            return iter([windows[block >> WINDOW_BITS] for block in blocks])
        while len(windows) <= blocks[-1] >> WINDOW_BITS:
            windows.append(len(windows) << WINDOW_BITS)
        touched = windows[blocks.start >> WINDOW_BITS : (blocks[-1] >> WINDOW_BITS) + 1]
        each = chain.from_iterable(map(repeat, touched, repeat(WINDOW)))
        skipped = blocks.start - touched[0]
        return islice(each, skipped, skipped + len(blocks))

    def _add_each(self, keys: Sequence[bytes], blocks: Sequence[int]) -> bool:
        """As `add`, where the bits of some key are not new."""
        added: list[int] = []
        for key, block, first in zip(keys, blocks, self._first(blocks), strict=True):
            bits = _bits_of(key)
            before = self._places.get(bits)
            if key in self._twins or (
                before is not None and self._search(key, before, block) is not None
            ):
                self.remove(added)
                return False
            if before is None:
                self._places[bits] = first
            else:
                self._twins[key] = block
            added.append(block)
        return True

    def _search(self, key: bytes, first: int, but: int = -1) -> int | None:
        """The block in a window that has this key, other than `but`."""
        begin = first * DIGEST_BYTES
        end = begin + _WINDOW_BYTES
        while (begin := self._keys.find(key, begin, end)) >= 0:
            block, odd = divmod(begin, DIGEST_BYTES)
            if not odd and block != but and self._spaces[block] == self.number:
                return block
            begin += 1
        return None

    def _run(self, first: int, raw: bytes, row: int) -> int:
        """How many blocks from `first` on have the keys of `raw` from a row on, in its order."""
        shift = first - row
        at, end, some = row, len(raw) // DIGEST_BYTES, _COMPARED
        while at < end:
            stop = min(at + some, end)
            wanted = raw[at * DIGEST_BYTES : stop * DIGEST_BYTES]
            here = self._keys[(at + shift) * DIGEST_BYTES : (stop + shift) * DIGEST_BYTES]
            if here != wanted:
                at += common(here, wanted)
                break
            at, some = stop, some * 2
        spaces = self._spaces[first : at + shift]
        if spaces != array("H", [self.number]) * len(spaces):
            return next(n for n, space in enumerate(spaces) if space != self.number)
        return len(spaces)

    def _raw(self, blocks: Sequence[int]) -> bytes | memoryview:
        """Their keys, as the column has them; it cannot grow while they are looked at."""
        keys = self._keys
        if type(blocks) is range:
            return memoryview(keys)[blocks.start * DIGEST_BYTES : blocks.stop * DIGEST_BYTES]
        begins = [block * DIGEST_BYTES for block in blocks]
        return b"".join([keys[begin : begin + DIGEST_BYTES] for begin in begins])


def _bits_of(key: bytes) -> int:
    return int.from_bytes(key[:_WORD_BYTES], byteorder) & BITS


def _bits(raw: bytes | memoryview) -> array[int]:
    """What the dict has of each key."""
    words = array("Q")
    words.frombytes(raw)
    words = words[:: DIGEST_BYTES // _WORD_BYTES]
    memoryview(words).cast("B")[_TOP_BYTE::_WORD_BYTES] = bytes(len(words))
    return words
