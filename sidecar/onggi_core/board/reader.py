"""A client's side of the board: find a chain, and see afterwards whether it was there all along."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from onggi_core.board.layout import (
    BUCKET_BYTES,
    ENTRY_BYTES,
    GATE_BYTES,
    KEY_BYTES,
    MARK,
    Layout,
)

ROW_MAX: Final = 1024
"""Slots compared at once: a row is seldom longer than what one request stores."""

_OPEN: Final = (1).to_bytes(8, "little")


class Seen(NamedTuple):
    """The leading blocks of a chain that the board shows. units: where their pages begin, in 4 KiB
    from the start of the data. stamps: (offset in the board, bytes) of what was read first."""

    units: array[int]
    stamps: tuple[tuple[int, bytes], ...]

    @property
    def blocks(self) -> int:
        return len(self.units)


class BoardReader:
    """buffer: the board, which another process writes. Every look is a copy, taken in order."""

    def __init__(self, buffer: memoryview, slots: int) -> None:
        self.layout = layout = Layout(slots)
        self._buffer = buffer[: layout.nbytes]
        self._slots = slots
        self._keys_at = layout.keys_at
        self._tags_at = layout.tags_at
        self._places_at = layout.places_at
        self._stamps_at = layout.stamps_at

    @property
    def open(self) -> bool:
        """Whether the agent answers at all."""
        return bytes(self._buffer[:8]) == _OPEN

    def look(self, tag: int, keys: bytes) -> Seen:
        """The longest leading run of a chain. keys: 16 bytes each, one after the other."""
        units = array("I")
        stamps: list[tuple[int, bytes]] = []
        count, begun = len(keys) // KEY_BYTES, 0
        label = tag.to_bytes(4, "little")
        while begun < count:
            at = begun * KEY_BYTES
            slot = self._find(tag, label, keys[at : at + KEY_BYTES])
            if slot < 0:
                break
            most = min(count - begun, ROW_MAX, self._slots - slot)
            first = self._stamps_at + 8 * slot
            seen = self._copy(first, 8 * most)
            row = self._row(slot, label, keys[at : at + most * KEY_BYTES], seen)
            if not row:
                break
            stamps.append((first, seen[: 8 * row]))
            units.frombytes(self._copy(self._places_at + 4 * slot, 4 * row))
            begun += row
        return Seen(units, tuple(stamps))

    def still(self, seen: Seen) -> bool:
        """Whether all of it was shown from before it was looked at until now."""
        return all(self._copy(at, len(was)) == was for at, was in seen.stamps)

    def shows(self, slot: int, tag: int, key: bytes, unit: int) -> bool:
        """Whether a slot shows this block at this place."""
        return (
            any(self._copy(self._stamps_at + 8 * slot, 8))
            and self._names(slot, tag.to_bytes(4, "little"), key)
            and self._copy(self._places_at + 4 * slot, 4) == unit.to_bytes(4, "little")
        )

    def _find(self, tag: int, label: bytes, key: bytes) -> int:
        """The slot of a name; -1: it is not here."""
        begin = GATE_BYTES + self.layout.bucket(tag, key) * BUCKET_BYTES
        bucket, mark = self._copy(begin, BUCKET_BYTES), key[MARK]
        at = bucket.find(mark)
        while at >= 0:
            if at % ENTRY_BYTES == 0:
                slot = int.from_bytes(bucket[at + 4 : at + 8], "little") - 1
                if 0 <= slot < self._slots and self._names(slot, label, key):
                    return slot
            at = bucket.find(mark, at + 1)
        return -1

    def _names(self, slot: int, label: bytes, key: bytes) -> bool:
        return (
            self._copy(self._keys_at + slot * KEY_BYTES, KEY_BYTES) == key
            and self._copy(self._tags_at + 4 * slot, 4) == label
        )

    def _row(self, slot: int, label: bytes, keys: bytes, stamps: bytes) -> int:
        """How many slots from this one on show `keys`, one after the other."""
        count = len(keys) // KEY_BYTES
        if not all(numbers := array("Q", stamps)):
            count = list(map(bool, numbers)).index(False)
        here = self._copy(self._keys_at + slot * KEY_BYTES, count * KEY_BYTES)
        count = _alike(here, keys, KEY_BYTES, count)
        return _alike(self._copy(self._tags_at + 4 * slot, 4 * count), label * count, 4, count)

    def _copy(self, at: int, nbytes: int) -> bytes:
        return bytes(self._buffer[at : at + nbytes])


def _alike(one: bytes, other: bytes, size: int, count: int) -> int:
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
