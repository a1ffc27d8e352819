"""How the page table of a disk tier lies in its file: pure packing, checked by tests.

A fixed place for everything, so nothing is appended, nothing grows and nothing is compacted:

    0        header, one 4 KiB block
    4 KiB    spaces: SPACES_MAX entries of 32 bytes
    then     one region a segment, each as long as pages of 4 KiB would need:
               entry, one block: the segment's number and the stride of its pages
               records, in blocks of 73 and a digest of them
               last uses, u32 a page, in its low bits how often it was asked for: guarded by
               nothing, since they only say what goes first

The digest of a block lets a reader believe 73 records with one call. Each record has a CRC of its
own, looked at only where the digest fails, so that one damaged record does not cost its
neighbours. Little-endian, packed (docs/formats.md).
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import xxhash

from onggi_core.geometry import ALIGN_BYTES
from onggi_core.wire.requests import SpaceSpec

SEGMENT_VERSION: Final = 2
TABLE_VERSION: Final = 3
SECONDS_VERSION: Final = 2
"""Of tables whose last uses are seconds alone; read, and written on as TABLE_VERSION."""
TABLE_MAGIC: Final = b"ONGGITBL"
ENTRY_MAGIC: Final = b"SGMT"

SPACES_MAX: Final = 4096
"""Four times what the engine serves at once: numbers of old spaces come back only in a scan."""
SPACE_BYTES: Final = 32
BLOCK_BYTES: Final = 4096
RECORD_BYTES: Final = 56
BLOCK_RECORDS: Final = 73
RECORDS_BYTES: Final = BLOCK_RECORDS * RECORD_BYTES
USE_BYTES: Final = 4
COUNT_MASK: Final = 0b111
"""Of a last use: how often the page was asked for, as far as policies count. The other bits are
the second, so to within eight of them."""
USE_MAX: Final = 2**32 - 1 - COUNT_MASK
"""The last second that a use may be of."""
COUNT_OF: Final = bytes([byte & COUNT_MASK for byte in range(256)])
SECOND_OF: Final = bytes([byte & ~COUNT_MASK for byte in range(256)])
"""What translates the low bytes of last uses into counts, and into those of seconds alone."""

SPACES_OFFSET: Final = BLOCK_BYTES
REGIONS_OFFSET: Final = SPACES_OFFSET + SPACES_MAX * SPACE_BYTES

HEADER: Final = struct.Struct("<8sII16sQd")
"""magic, version, record bytes, tier uuid, segment bytes, when it was sealed (Unix s; 0: it was
not)."""
SPACE: Final = struct.Struct("<16sQI")
ENTRY: Final = struct.Struct("<4sIQ")
"""magic, segment number, stride of its pages (0: holds none)."""
RECORD: Final = struct.Struct("<16s16s16sI4x")
"""key, parent, checksum, space number; then the CRC."""
_CHECKED: Final = struct.Struct("<16s16s16sI")
NUMBER_FREE: Final = 0xFFFFFFFF
NUMBER_WORD: Final = 12
"""Where the space number lies in a record, in words of 4 bytes."""
RECORD_WORDS: Final = RECORD_BYTES // 4

assert RECORD.size == RECORD_BYTES
assert _CHECKED.size + 4 == RECORD_BYTES
assert RECORDS_BYTES + 8 == BLOCK_BYTES
assert SPACE.size + 4 == SPACE_BYTES


def with_crc(fields: bytes) -> bytes:
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def crc_holds(raw: bytes | memoryview) -> bool:
    """Whether the last four bytes are the CRC of those before."""
    return zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")


def pack_header(tier_uuid: bytes, segment_bytes: int, sealed_s: float) -> bytes:
    fields = (TABLE_MAGIC, TABLE_VERSION, RECORD_BYTES, tier_uuid, segment_bytes, sealed_s)
    return with_crc(HEADER.pack(*fields)).ljust(BLOCK_BYTES, b"\0")


def pack_space(spec: SpaceSpec) -> bytes:
    return with_crc(SPACE.pack(spec.fingerprint, spec.page_bytes, spec.block_tokens))


def pack_entry(number: int, stride_bytes: int) -> bytes:
    fields = with_crc(ENTRY.pack(ENTRY_MAGIC, number, stride_bytes))
    return fields.ljust(BLOCK_BYTES, b"\0")


def pack_record(key: bytes, parent: bytes, checksum: bytes, number: int) -> bytes:
    return with_crc(_CHECKED.pack(key, parent, checksum, number))


FREE_RECORD: Final = with_crc(b"\xff" * _CHECKED.size)
"""Not zeros: a record that was zeroed is damaged, not free."""


def block_digest(block: bytes | memoryview) -> bytes:
    """Of a block's records, as it stands behind them."""
    return xxhash.xxh3_64_intdigest(block[:RECORDS_BYTES]).to_bytes(8, "little")


FREE_BLOCK: Final = FREE_RECORD * BLOCK_RECORDS + block_digest(FREE_RECORD * BLOCK_RECORDS)


def use_at(now_s: float) -> int:
    """A last use of this moment, its count 0. A node's clock may say anything."""
    return min(max(0, int(now_s)), USE_MAX) & ~COUNT_MASK


def patch_record(blocks: bytearray, slot: int, record: bytes) -> None:
    """Put a record at a slot counted from the first of `blocks`; the digest is left as it was."""
    block, within = divmod(slot, BLOCK_RECORDS)
    at = block * BLOCK_BYTES + within * RECORD_BYTES
    blocks[at : at + RECORD_BYTES] = record


def close_block(blocks: bytearray, block: int) -> None:
    """Make the digest of a patched block right."""
    end = (block + 1) * BLOCK_BYTES
    view = memoryview(blocks)[end - BLOCK_BYTES : end]
    blocks[end - 8 : end] = block_digest(view)


def heal_block(blocks: bytearray, block: int) -> int:
    """Free the records of a block that cannot be believed; how many those were."""
    begin = block * BLOCK_BYTES
    view = memoryview(blocks)[begin : begin + BLOCK_BYTES]
    if view[RECORDS_BYTES:] == block_digest(view):
        return 0
    lost = 0
    for at in range(0, RECORDS_BYTES, RECORD_BYTES):
        if not crc_holds(view[at : at + RECORD_BYTES]):
            view[at : at + RECORD_BYTES] = FREE_RECORD
            lost += 1
    view[RECORDS_BYTES:] = block_digest(view)
    return lost


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where things are for one segment size."""

    segment_bytes: int

    @property
    def region_bytes(self) -> int:
        """A segment's region: room for the smallest pages there are. One part in 68 of it."""
        slots = self.segment_bytes // ALIGN_BYTES
        uses_blocks = -(-slots * USE_BYTES // BLOCK_BYTES)
        return (1 + blocks_for(slots) + uses_blocks) * BLOCK_BYTES

    def entry_offset(self, segment: int) -> int:
        return REGIONS_OFFSET + segment * self.region_bytes

    def blocks_offset(self, segment: int) -> int:
        return self.entry_offset(segment) + BLOCK_BYTES

    def uses_offset(self, segment: int, stride_bytes: int) -> int:
        blocks = blocks_for(self.slots(stride_bytes))
        return self.blocks_offset(segment) + blocks * BLOCK_BYTES

    def slots(self, stride_bytes: int) -> int:
        return self.segment_bytes // stride_bytes


def blocks_for(slots: int) -> int:
    return -(-slots // BLOCK_RECORDS)
