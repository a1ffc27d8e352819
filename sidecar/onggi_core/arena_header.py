"""The first bytes of an arena file: what a client checks before it trusts the rest.

The layout is part of the format in docs/formats.md and is versioned: a field is never moved or
given another meaning under the same version. Little-endian, packed, 56 bytes:

    0  8s  magic          b"ONGGIARN"
    8  u32 version        2
   12  u32 header bytes   56
   16  16s epoch          random per agent life; 16 zero bytes: the file is retired
   32  u64 extent bytes   a power of two, at least 1 MiB
   40  u32 extent count   extents the file has room for
   44  u32 turns offset   where the turns begin, 4 KiB
   48  u64 data offset    where extent 0 begins, 2 MiB

At the turns offset lies one u32 for each extent, its *turn*: how often it was touched or given
back so far. Odd: its memory is the agent's, and pages of it may be offered. Even: it has no memory
now, and reading it would take some. A client that prepares an extent (page table, registration for
DMA) notes the turn and does it again under another one: the memory behind it is another then.
"""

import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"ONGGIARN"
VERSION: Final = 2
EPOCH_BYTES: Final = 16
EPOCH_OFFSET: Final = 16
RETIRED_EPOCH: Final = bytes(EPOCH_BYTES)
TURNS_OFFSET: Final = 4096
TURN_BYTES: Final = 4
DATA_OFFSET_BYTES: Final = 2 * 1024 * 1024
"""Extents begin on a huge-page boundary, so that a 2 MiB page never straddles two of them."""
EXTENTS_MAX: Final = (DATA_OFFSET_BYTES - TURNS_OFFSET) // TURN_BYTES
"""523,264 turns lie between the header and the data: half a terabyte in extents of 1 MiB."""

_LAYOUT: Final = struct.Struct("<8sII16sQIIQ")
HEADER_BYTES: Final = _LAYOUT.size
assert HEADER_BYTES == 56


class NotAnArena(ValueError):
    """The bytes are not a header this version reads; the message says which field and value."""


def has_memory(turn: int) -> bool:
    """Whether an extent's memory is the agent's under this turn."""
    return turn % 2 == 1


@dataclass(frozen=True, slots=True)
class ArenaHeader:
    """A parsed header. epoch: 16 bytes, all zero once the file is retired."""

    epoch: bytes
    extent_bytes: int
    extent_count: int
    turns_offset: int = TURNS_OFFSET
    data_offset_bytes: int = DATA_OFFSET_BYTES

    @property
    def turns_bytes(self) -> int:
        return self.extent_count * TURN_BYTES

    @property
    def file_bytes(self) -> int:
        return self.data_offset_bytes + self.extent_bytes * self.extent_count

    def pack(self) -> bytes:
        return _LAYOUT.pack(
            MAGIC,
            VERSION,
            HEADER_BYTES,
            self.epoch,
            self.extent_bytes,
            self.extent_count,
            self.turns_offset,
            self.data_offset_bytes,
        )


def parse_header(raw: bytes) -> ArenaHeader:
    """Read a header. Raises NotAnArena on short input, a foreign magic or another version, or where
    its parts do not fit into each other."""
    if len(raw) < HEADER_BYTES:
        raise NotAnArena(f"arena header has {len(raw)} bytes, needs {HEADER_BYTES}")
    magic, version, header_bytes, epoch, extent_bytes, extents, turns, offset = _LAYOUT.unpack(
        raw[:HEADER_BYTES]
    )
    if magic != MAGIC:
        raise NotAnArena(f"arena magic is {magic!r}, should be {MAGIC!r}")
    if version != VERSION or header_bytes != HEADER_BYTES:
        raise NotAnArena(
            f"arena version is {version} with {header_bytes} header bytes, "
            f"should be {VERSION} with {HEADER_BYTES}"
        )
    if turns % TURN_BYTES or not HEADER_BYTES <= turns <= offset - extents * TURN_BYTES:
        raise NotAnArena(
            f"arena turns of {extents} extents lie at {turns}, outside {HEADER_BYTES} to {offset}"
        )
    return ArenaHeader(epoch, extent_bytes, extents, turns, offset)
