"""The first bytes of an arena file: what a client checks before it trusts the rest.

The layout is part of the format in docs/formats.md and is versioned: a field is never moved or
given another meaning under the same version. Little-endian, packed, 72 bytes:

    0  8s  magic          b"ONGGIARN"
    8  u32 version        3
   12  u32 header bytes   72
   16  16s epoch          random per agent life; 16 zero bytes: the file is retired
   32  u64 extent bytes   a power of two, at least 1 MiB
   40  u32 extent count   extents the file has room for
   44  u32 turns offset   where the turns begin, 4 KiB
   48  u64 data offset    where extent 0 begins, a multiple of 2 MiB
   56  u64 board offset   where the board begins (onggi_core.board), a multiple of 4 KiB
   64  u32 board slots    0: there is none
   68  u32 zero

At the turns offset lies one u32 for each extent, its *turn*: how often it was touched or given
back so far. Odd: its memory is the agent's, and pages of it may be offered. Even: it has no memory
now, and reading it would take some. A client that prepares an extent (page table, registration for
DMA) notes the turn and does it again under another one: the memory behind it is another then.
"""

import struct
from dataclasses import dataclass
from typing import Final

from onggi_core.board.layout import SLOTS_MAX, SLOTS_MIN, Layout, slots_for

MAGIC: Final = b"ONGGIARN"
VERSION: Final = 3
EPOCH_BYTES: Final = 16
EPOCH_OFFSET: Final = 16
RETIRED_EPOCH: Final = bytes(EPOCH_BYTES)
TURNS_OFFSET: Final = 4096
TURN_BYTES: Final = 4
DATA_OFFSET_BYTES: Final = 2 * 1024 * 1024
"""Extents begin on a huge-page boundary, so that a 2 MiB page never straddles two of them. The
first of them, where there is no board."""
EXTENTS_MAX: Final = (DATA_OFFSET_BYTES - TURNS_OFFSET) // TURN_BYTES
"""523,264 turns: half a terabyte in extents of 1 MiB."""
PAGE_BYTES: Final = 4096
COPY_MAX_BYTES: Final = 8 * 1024 * 1024
"""Longest single copy of a client: some two milliseconds, which bounds how late it is noticed that
a deadline is over or that the agent took its arena back."""
COPY_SHARE: Final = 64
"""No longer than one part in so many of the data, though. A copy that was stopped in the middle,
and goes on when the next agent has moved into the volume, makes pages of what it touches. Where
there is no room for them the kernel ends its process."""

_LAYOUT: Final = struct.Struct("<8sII16sQIIQQII")
HEADER_BYTES: Final = _LAYOUT.size
assert HEADER_BYTES == 72


class NotAnArena(ValueError):
    """The bytes are not a header this version reads; the message says which field and value."""


class OtherArenaVersion(NotAnArena):
    """A header, and of another version than this one's."""


def copy_max_bytes(data_bytes: int) -> int:
    """Longest single copy into or out of an arena with so many bytes of data."""
    most = min(COPY_MAX_BYTES, data_bytes // COPY_SHARE)
    return max(PAGE_BYTES, most - most % PAGE_BYTES)


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
    board_offset: int = 0
    board_slots: int = 0

    @classmethod
    def with_board(cls, epoch: bytes, extent_bytes: int, extents: int) -> "ArenaHeader":
        """One whose file has a board between the turns and the data."""
        slots = slots_for(extent_bytes * extents)
        begin = _up(TURNS_OFFSET + extents * TURN_BYTES, PAGE_BYTES)
        data = _up(begin + Layout(slots).nbytes, DATA_OFFSET_BYTES)
        return cls(epoch, extent_bytes, extents, TURNS_OFFSET, data, begin, slots)

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
            self.board_offset,
            self.board_slots,
            0,
        )

    @property
    def front_bytes(self) -> int:
        """What the agent writes before the data: header, turns and board."""
        if self.board_slots:
            return self.board_offset + Layout(self.board_slots).nbytes
        return self.turns_offset + self.turns_bytes


def _up(nbytes: int, step: int) -> int:
    """The next multiple."""
    return -(-nbytes // step) * step


def parse_header(raw: bytes) -> ArenaHeader:
    """Read a header. Raises NotAnArena on short input, a foreign magic or another version, or where
    its parts do not fit into each other."""
    if len(raw) < HEADER_BYTES:
        raise NotAnArena(f"arena header has {len(raw)} bytes, needs {HEADER_BYTES}")
    magic, version, header_bytes, epoch, extent_bytes, extents, turns, offset, *board = (
        _LAYOUT.unpack(raw[:HEADER_BYTES])
    )
    if magic != MAGIC:
        raise NotAnArena(f"arena magic is {magic!r}, should be {MAGIC!r}")
    if version != VERSION or header_bytes != HEADER_BYTES:
        raise OtherArenaVersion(
            f"arena version is {version} with {header_bytes} header bytes, "
            f"should be {VERSION} with {HEADER_BYTES}"
        )
    if turns % TURN_BYTES or not HEADER_BYTES <= turns <= offset - extents * TURN_BYTES:
        raise NotAnArena(
            f"arena turns of {extents} extents lie at {turns}, outside {HEADER_BYTES} to {offset}"
        )
    board_offset, slots, reserved = board
    header = ArenaHeader(epoch, extent_bytes, extents, turns, offset, board_offset, slots)
    if reserved or (slots and not _board_fits(header)):
        raise NotAnArena(
            f"arena board of {header.board_slots} slots lies at {header.board_offset}, outside "
            f"{turns + header.turns_bytes} to {offset}"
        )
    return header


def _board_fits(header: ArenaHeader) -> bool:
    slots, begin = header.board_slots, header.board_offset
    return (
        SLOTS_MIN <= slots <= SLOTS_MAX
        and slots & (slots - 1) == 0
        and begin % PAGE_BYTES == 0
        and header.turns_offset + header.turns_bytes <= begin
        and begin + Layout(slots).beginnings_at <= header.data_offset_bytes
    )
