"""A client's side of the board: find a chain, and see afterwards whether it was there all along.

It runs right after megabytes were copied, when none of its code is in the processor's caches, so it
is short: what is usual is one pass without calls, and every look is one slice.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from onggi_core.board.beginnings import place
from onggi_core.board.layout import (
    BUCKET_BYTES,
    BUCKETS_AT,
    ENTRY_BYTES,
    KEY_BYTES,
    MARK,
    Layout,
)
from onggi_core.wire.frame import Op

ROW_MAX: Final = 1024
"""Slots compared at once: a row is seldom longer than what one request stores."""

_OPEN: Final = (1).to_bytes(8, "little")
_NOTHING: Final = bytes(8)
_NOBODY: Final = bytes(1)


class Buffer(Protocol):
    """Memory that another process writes. A slice of it is a copy, taken then: an mmap's."""

    def __getitem__(self, part: slice, /) -> bytes | bytearray: ...


Row = tuple["array[int]", int, "bytes | bytearray"]
"""Where the blocks of a chain begin, in 4 KiB from the start of the data; where in the buffer their
stamps lie, and what those were before anything else was read."""


class Seen(NamedTuple):
    """The leading blocks of a chain that the board shows. units: where their pages begin, in 4 KiB
    from the start of the data. stamps: (offset in the buffer, bytes) of what was read first."""

    units: array[int]
    stamps: tuple[tuple[int, bytes | bytearray], ...]

    @property
    def blocks(self) -> int:
        return len(self.units)


class BoardReader:
    """A board of `slots` slots that begins `begin` bytes into the buffer."""

    def __init__(self, buffer: Buffer, slots: int, begin: int = 0) -> None:
        self.layout = layout = Layout(slots)
        self.buffer = buffer
        self._slots = slots
        self._gate = slice(begin, begin + 8)
        self._buckets_at = begin + BUCKETS_AT
        self._mask = layout.buckets - 1
        self._keys_at = begin + layout.keys_at
        self._tags_at = begin + layout.tags_at
        self._places_at = begin + layout.places_at
        self._stamps_at = begin + layout.stamps_at
        said = int.from_bytes(buffer[begin + 8 : begin + 16], "little")
        self._beginnings = layout.beginnings if said == layout.beginnings else 0
        self.locates = int.from_bytes(buffer[begin + 16 : begin + 24], "little") >= Op.LOCATE
        """False: an agent of an earlier version, to which LOCATE would be the end of the stream."""
        self._beginnings_at = begin + layout.beginnings_at

    @property
    def open(self) -> bool:
        """Whether the agent answers at all."""
        return self.buffer[self._gate] == _OPEN

    @property
    def tells_beginnings(self) -> bool:
        """False: an agent of an earlier version, which does not know MISSED either."""
        return self._beginnings > 0

    def may_begin(self, key: bytes) -> bool:
        """Whether any tier may hold a chain whose first block has this key. False is sure, and as
        old as the agent's last step."""
        if not self._beginnings:
            return True
        at = self._beginnings_at + place(key, self._beginnings)
        return self.buffer[at : at + 1] != _NOBODY

    def row(self, tag: int, keys: bytes) -> Row | None:
        """A whole chain whose blocks are shown in slots one after the other, as most are, while
        the agent answers at all. None: look()."""
        count, buffer = len(keys) // KEY_BYTES, self.buffer
        if not 0 < count <= ROW_MAX:
            return None
        begin = self._buckets_at + (crc32(keys[:KEY_BYTES], tag) & self._mask) * BUCKET_BYTES
        entries = buffer[begin : begin + BUCKET_BYTES]
        found = entries.find(keys[MARK])
        slot = int.from_bytes(entries[found + 4 : found + 8], "little") - 1
        if found < 0 or found % ENTRY_BYTES or not 0 <= slot <= self._slots - count:
            return None
        first = self._stamps_at + 8 * slot
        stamps = buffer[first : first + 8 * count]
        names, tags = self._keys_at + slot * KEY_BYTES, self._tags_at + 4 * slot
        if (
            buffer[names : names + len(keys)] != keys
            or buffer[tags : tags + 4 * count] != tag.to_bytes(4, "little") * count
            or _NOTHING in stamps
            or buffer[self._gate] != _OPEN
        ):
            return None
        begin = self._places_at + 4 * slot
        return array("I", buffer[begin : begin + 4 * count]), first, stamps

    def look(self, tag: int, keys: bytes) -> Seen:
        """The longest leading run of a chain. keys: 16 bytes each, one after the other."""
        row = self.row(tag, keys)
        if row is None:
            return self._look_on(tag, keys)
        return Seen(row[0], (row[1:],))

    def lacks(self, tag: int, key: bytes) -> bool:
        """Whether look() would find nothing, as far as one look into the key's bucket tells."""
        begin = self._buckets_at + (crc32(key, tag) & self._mask) * BUCKET_BYTES
        return key[MARK] not in self.buffer[begin : begin + BUCKET_BYTES]

    def _look_on(self, tag: int, keys: bytes) -> Seen:
        """The same, row by row: where it is not all of it in one."""
        units, label = array("I"), tag.to_bytes(4, "little")
        stamps: list[tuple[int, bytes | bytearray]] = []
        at = 0
        while at < len(keys):
            slot, row, seen = self._find(tag, label, keys[at : at + ROW_MAX * KEY_BYTES])
            if not row:
                break
            stamps.append((self._stamps_at + 8 * slot, seen[: 8 * row]))
            begin = self._places_at + 4 * slot
            units.frombytes(self.buffer[begin : begin + 4 * row])
            at += row * KEY_BYTES
        return Seen(units, tuple(stamps))

    def _find(self, tag: int, label: bytes, keys: bytes) -> tuple[int, int, bytes | bytearray]:
        """The first slot of a chain's beginning, how many from there on show it, and what their
        stamps were before that was seen; 0: none."""
        begin = self._buckets_at + (crc32(keys[:KEY_BYTES], tag) & self._mask) * BUCKET_BYTES
        entries, mark = self.buffer[begin : begin + BUCKET_BYTES], keys[MARK]
        found = entries.find(mark)
        while found >= 0:
            slot = int.from_bytes(entries[found + 4 : found + 8], "little") - 1
            if found % ENTRY_BYTES == 0 and 0 <= slot < self._slots:
                most = min(len(keys) // KEY_BYTES, self._slots - slot)
                first = self._stamps_at + 8 * slot
                stamps = self.buffer[first : first + 8 * most]
                row = self._row(slot, label, keys[: most * KEY_BYTES], stamps)
                if row:
                    return slot, row, stamps
            found = entries.find(mark, found + 1)
        return -1, 0, b""

    def still(self, seen: Seen) -> bool:
        """Whether all of it was shown from before it was looked at until now."""
        buffer = self.buffer
        return all([buffer[at : at + len(was)] == was for at, was in seen.stamps])  # noqa: C419

    def shows(self, slot: int, tag: int, key: bytes, unit: int) -> bool:
        """Whether a slot shows this block at this place."""
        first, place = self._stamps_at + 8 * slot, self._places_at + 4 * slot
        stamp = self.buffer[first : first + 8]
        return self._row(slot, tag.to_bytes(4, "little"), key, stamp) == 1 and self.buffer[
            place : place + 4
        ] == unit.to_bytes(4, "little")

    def _row(self, slot: int, label: bytes, keys: bytes, stamps: bytes | bytearray) -> int:
        """How many slots from this one on show `keys`, one after the other."""
        count, buffer = len(stamps) // 8, self.buffer
        names, tags = self._keys_at + slot * KEY_BYTES, self._tags_at + 4 * slot
        here, whose = buffer[names : names + len(keys)], buffer[tags : tags + 4 * count]
        labels = label * count
        if not all(numbers := array("Q", bytes(stamps))):
            count = list(map(bool, numbers)).index(False)
        return _alike(whose, labels, 4, _alike(here, keys, KEY_BYTES, count))


def _alike(one: bytes | bytearray, other: bytes, size: int, count: int) -> int:
    """How many of the first `count` elements of `size` bytes are the same."""
    if one[: count * size] == other[: count * size]:
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if one[: middle * size] == other[: middle * size]:
            low = middle
        else:
            high = middle
    return low
