"""Journal records: what each 88 bytes of the journal mean.

Fixed size, so one damaged record never hides the next. Where two records speak of one slot the
later one holds; where two PUTs name one block, too. Little-endian, packed (docs/formats.md):

    0  u32 crc32 of bytes 4..87
    4  u8  type, 3 bytes zero
    8      body, 80 bytes by type, zero-padded:
           HEADER  8s magic "ONGGIJNL", u32 version 1, u32 record bytes 88, 16s tier uuid,
                   u64 segment bytes
           SPACE   u32 space, u32 block tokens, u64 page bytes, 16s fingerprint
           PUT     u32 space, u32 zero, u64 place, 16s key, 16s parent, 16s checksum,
                   u64 page bytes, f64 last use (Unix seconds)
           DROP    u64 zero, u64 place, 16s key
           SEAL    f64 time (Unix seconds): written last by a clean end

A place is a byte offset in the tier: segment number times segment bytes, plus the offset behind
that segment's header.
"""

import enum
import struct
import zlib
from typing import Final

import xxhash

from onggi_core.wire.requests import SpaceSpec

JOURNAL_MAGIC: Final = b"ONGGIJNL"
FORMAT_VERSION: Final = 1
RECORD_BYTES: Final = 88
BODY_OFFSET: Final = 8
BODY_BYTES: Final = RECORD_BYTES - BODY_OFFSET

FRAME: Final = struct.Struct("<IB3x80s")
HEADER_BODY: Final = struct.Struct("<8sII16sQ40x")
SPACE_BODY: Final = struct.Struct("<IIQ16s48x")
PUT_BODY: Final = struct.Struct("<IIQ16s16s16sQd")
DROP_BODY: Final = struct.Struct("<QQ16s48x")
SEAL_BODY: Final = struct.Struct("<d72x")
_CHECKED_PART: Final = struct.Struct("<B3x80s")
_DESCRIBED: Final = struct.Struct("<16sQI16s")

assert FRAME.size == RECORD_BYTES
assert {s.size for s in (HEADER_BODY, SPACE_BODY, PUT_BODY, DROP_BODY, SEAL_BODY)} == {BODY_BYTES}


class Kind(enum.IntEnum):
    HEADER = 1
    SPACE = 2
    PUT = 3
    DROP = 4
    SEAL = 5


def pack_record(kind: Kind, body: bytes) -> bytes:
    """A whole record, CRC in front."""
    rest = _CHECKED_PART.pack(kind, body)
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def header_record(tier_uuid: bytes, segment_bytes: int) -> bytes:
    fields = (JOURNAL_MAGIC, FORMAT_VERSION, RECORD_BYTES, tier_uuid, segment_bytes)
    return pack_record(Kind.HEADER, HEADER_BODY.pack(*fields))


def space_record(number: int, spec: SpaceSpec) -> bytes:
    fields = (number, spec.block_tokens, spec.page_bytes, spec.fingerprint)
    return pack_record(Kind.SPACE, SPACE_BODY.pack(*fields))


def page_checksum(space: SpaceSpec, key: bytes, page: memoryview) -> bytes:
    """xxh3-128 over what the page is, then its bytes.

    The description is part of it: right bytes under a wrong layout, length or key are as wrong as
    flipped ones (Mesh-LLM/mesh-llm#1228). page: [page_bytes] uint8, exactly the block's length.
    """
    described = (space.fingerprint, space.page_bytes, space.block_tokens, key)
    state = xxhash.xxh3_128(_DESCRIBED.pack(*described))
    state.update(page)
    return state.digest()
