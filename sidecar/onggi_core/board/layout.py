"""Where the parts of a board lie, and how a name is found on it.

A board has a fixed number of *slots*; one that is in use shows one block of one space. Its parts,
one after the other, little-endian:

    gate     u64            1: the agent answers; 0: whatever the board shows is a miss
             u64            how many beginnings there are; 0: this agent has none
             u64            the last operation that the agent knows; 0: none after MISSED
    spaces   32s [1024]     what the tags mean: fingerprint 16s, page bytes u64, block tokens u32,
                            tag u32 (0: none), for whoever takes over from an agent that died
    buckets  u64 [slots*2]  names to slots: 8 entries a bucket, each slot + 1 in the upper half and
                            bytes 12 to 16 of the key in the lower; 0 is free
    keys     16s [slots]
    parents  16s [slots]    the key of the block before it; for the same
    tags     u32 [slots]    which space, by the number that HELLO's reply gave to it
    places   u32 [slots]    where its page begins, in 4 KiB from the start of the data
    stamps   u64 [slots]    which showing this is, never the same twice; 0: nothing is shown
    beginnings u8 [slots, at least 16384]  0: no known chain begins so (onggi_core.board.beginnings)

The bucket of a name is the CRC-32 of its key, begun with the tag, modulo the number of buckets. An
entry is a hint: it may be left over, so a name is found where the slot's key and tag say so. Blocks
of a chain that came at once have slots in a row where they can, so one comparison finds them all.

A reader takes the stamps of the slots it means, then keys, tags and places, copies the pages, and
takes the stamps again. If none of the stamps is 0 and all are the same, the bytes it has are those
of the blocks: the agent clears a stamp before it lets go of the page. That rests on a processor
that neither reorders reads with reads nor writes with writes, as x86 does; elsewhere, do not read.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

GATE_BYTES: Final = 4096
"""A page of memory for three words: nothing that changes often shares their cache line."""
SPACES_MAX: Final = 1024
"""As many as an agent knows at once."""
SPACE: Final = struct.Struct("<16sQII")
BUCKETS_AT: Final = GATE_BYTES + SPACES_MAX * SPACE.size
ENTRIES: Final = 8
"""Of a bucket: one cache line."""
ENTRY_BYTES: Final = 8
BUCKET_BYTES: Final = ENTRIES * ENTRY_BYTES
SLOTS_PER_BUCKET: Final = 4
"""Half of the entries at most are in use, so that one name in a hundred at most finds its bucket
full; it is found behind the one before it, as most are, or asked for over the socket."""
KEY_BYTES: Final = 16
MARK: Final = slice(12, 16)
"""The part of a key that an entry repeats."""
SLOT_ARENA_BYTES: Final = 16 * 1024
"""Arena for one slot of 64 bytes: the smallest pages there are in practice. Pages that find no slot
are not shown."""
SLOTS_MIN: Final = 256
SLOTS_MAX: Final = 1 << 19
"""A board takes 32 MiB of memory at most: half a million pages, 128 GiB of 256 KiB each."""
BEGINNINGS_MIN: Final = 1 << 14
"""First blocks of what lies on disk count too, however small the arena is."""


def slots_for(arena_bytes: int) -> int:
    """Slots of an arena's board: a power of two."""
    wanted = max(SLOTS_MIN, min(SLOTS_MAX, arena_bytes // SLOT_ARENA_BYTES))
    return 1 << (wanted - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes from the start of the board. slots: a power of two, at least SLOTS_MIN."""

    slots: int

    @property
    def buckets(self) -> int:
        return self.slots // SLOTS_PER_BUCKET

    @property
    def keys_at(self) -> int:
        return BUCKETS_AT + self.buckets * BUCKET_BYTES

    @property
    def parents_at(self) -> int:
        return self.keys_at + self.slots * KEY_BYTES

    @property
    def tags_at(self) -> int:
        return self.parents_at + self.slots * KEY_BYTES

    @property
    def places_at(self) -> int:
        return self.tags_at + self.slots * 4

    @property
    def stamps_at(self) -> int:
        return self.places_at + self.slots * 4

    @property
    def beginnings_at(self) -> int:
        """Where boards of earlier versions end."""
        return self.stamps_at + self.slots * 8

    @property
    def beginnings(self) -> int:
        return max(self.slots, BEGINNINGS_MIN)

    @property
    def nbytes(self) -> int:
        return self.beginnings_at + self.beginnings

    def bucket(self, tag: int, key: bytes) -> int:
        """The number of the bucket that a name may be in."""
        return zlib.crc32(key, tag) & (self.buckets - 1)
