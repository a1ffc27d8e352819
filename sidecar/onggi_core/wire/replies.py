"""What the agent answers, one class an operation, each with its own bytes."""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import dataclass
from typing import Any, Final, get_args

from onggi_core.wire.fields import (
    numbers_from,
    numbers_to,
    offsets_from,
    offsets_to,
    text_from,
    text_to,
    unpack,
    whole,
)
from onggi_core.wire.frame import Op, Status, WireError
from onggi_core.wire.locate import Located


class Mode(enum.IntEnum):
    """What a pool does: work, only watch (stores nothing), or nothing at all."""

    ACTIVE = 1
    OBSERVE = 2
    PAUSED = 3


class Slot(enum.IntEnum):
    """In the place of an offset: why a block of a store got no page."""

    EXISTS = 2**64 - 1
    BUSY = 2**64 - 2
    NO_ROOM = 2**64 - 3


_WELCOME: Final = struct.Struct("<HBQ16sQQII")
_LOOKED: Final = struct.Struct("<II")
_TICKET: Final = struct.Struct("<Q")
_LOADED: Final = struct.Struct("<QII")
_FILLED: Final = struct.Struct("<IIQ")
_COUNT: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Welcome:
    """arena: file name beside the socket. Sizes in bytes, offsets within the arena file."""

    version: int
    mode: Mode
    session: int
    epoch: bytes
    arena_bytes: int
    data_offset: int
    extent_bytes: int
    lease_ms: int
    arena: str
    tags: tuple[int, ...] = ()
    """The spaces' numbers on the board, in the order of HELLO."""
    op: Op = Op.HELLO

    def encode(self) -> bytes:
        head = _WELCOME.pack(
            self.version,
            self.mode,
            self.session,
            self.epoch,
            self.arena_bytes,
            self.data_offset,
            self.extent_bytes,
            self.lease_ms,
        )
        return head + text_to(self.arena) + numbers_to(self.tags)

    @classmethod
    def decode(cls, payload: bytes) -> Welcome:
        version, mode, session, epoch, *sizes = unpack(_WELCOME, payload, 0, "WELCOME")
        arena_bytes, data_offset, extent_bytes, lease_ms = sizes
        arena, at = text_from(payload, _WELCOME.size, "arena")
        tags, at = numbers_from(payload, at, "WELCOME")
        whole(payload, at, "WELCOME")
        if mode not in {m.value for m in Mode}:
            raise WireError(Status.BAD_FRAME, f"mode is {mode}; use 1 to {max(Mode).value}")
        return cls(
            version=version,
            mode=Mode(mode),
            session=session,
            epoch=epoch,
            arena_bytes=arena_bytes,
            data_offset=data_offset,
            extent_bytes=extent_bytes,
            lease_ms=lease_ms,
            arena=arena,
            tags=tags,
        )


@dataclass(frozen=True, slots=True)
class Looked:
    """Leading blocks that can be loaded now, and that can be loaded or are on their way."""

    ready: int
    pending: int
    op: Op = Op.LOOKUP

    def encode(self) -> bytes:
        return _LOOKED.pack(self.ready, self.pending)

    @classmethod
    def decode(cls, payload: bytes) -> Looked:
        if len(payload) != _LOOKED.size:
            whole(payload, _LOOKED.size, "LOOKUP")
        return cls(*_LOOKED.unpack(payload))


@dataclass(frozen=True, slots=True)
class StorePrepared:
    """slots: for each key an offset in the arena file, or a Slot that says why not."""

    ticket: int
    slots: tuple[int, ...]
    op: Op = Op.STORE_PREPARE

    def encode(self) -> bytes:
        return _TICKET.pack(self.ticket) + offsets_to(self.slots)

    @classmethod
    def decode(cls, payload: bytes) -> StorePrepared:
        (ticket,) = unpack(_TICKET, payload, 0, "STORE_PREPARE")
        slots, at = offsets_from(payload, _TICKET.size, "STORE_PREPARE")
        whole(payload, at, "STORE_PREPARE")
        return cls(ticket, slots)


@dataclass(frozen=True, slots=True)
class StoreCompleted:
    sealed: int
    op: Op = Op.STORE_COMPLETE

    def encode(self) -> bytes:
        return _COUNT.pack(self.sealed)

    @classmethod
    def decode(cls, payload: bytes) -> StoreCompleted:
        (sealed,) = unpack(_COUNT, payload, 0, "STORE_COMPLETE")
        whole(payload, _COUNT.size, "STORE_COMPLETE")
        return cls(sealed)


@dataclass(frozen=True, slots=True)
class StoreFilled:
    """sealed, existing: what became of the blocks. ticket, offsets: the next room; 0 for none."""

    sealed: int
    existing: int
    ticket: int
    offsets: tuple[int, ...]
    op: Op = Op.STORE_FILL

    def encode(self) -> bytes:
        return _FILLED.pack(self.sealed, self.existing, self.ticket) + offsets_to(self.offsets)

    @classmethod
    def decode(cls, payload: bytes) -> StoreFilled:
        sealed, existing, ticket = unpack(_FILLED, payload, 0, "STORE_FILL")
        offsets, at = offsets_from(payload, _FILLED.size, "STORE_FILL")
        whole(payload, at, "STORE_FILL")
        return cls(sealed, existing, ticket, offsets)


@dataclass(frozen=True, slots=True)
class LoadPrepared:
    """offsets[s][b]: where block b of space s lies in the arena file; pinned until the lease ends.

    from_disk: how many of the blocks came from the disk tier for this load.
    """

    ticket: int
    from_disk: int
    offsets: tuple[tuple[int, ...], ...]
    op: Op = Op.LOAD_PREPARE

    @property
    def blocks(self) -> int:
        return len(self.offsets[0]) if self.offsets else 0

    def encode(self) -> bytes:
        head = _LOADED.pack(self.ticket, self.from_disk, len(self.offsets))
        return head + b"".join(map(offsets_to, self.offsets))

    @classmethod
    def decode(cls, payload: bytes) -> LoadPrepared:
        ticket, from_disk, spaces = unpack(_LOADED, payload, 0, "LOAD_PREPARE")
        at = _LOADED.size
        rows = []
        for _ in range(spaces):
            row, at = offsets_from(payload, at, "LOAD_PREPARE")
            rows.append(row)
        whole(payload, at, "LOAD_PREPARE")
        if spaces > 1 and len(set(map(len, rows))) > 1:
            raise WireError(Status.BAD_FRAME, "LOAD_PREPARE has spaces of different length")
        return cls(ticket, from_disk, tuple(rows))


@dataclass(frozen=True, slots=True)
class LoadCompleted:
    op: Op = Op.LOAD_COMPLETE

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, payload: bytes) -> LoadCompleted:
        whole(payload, 0, "LOAD_COMPLETE")
        return cls()


@dataclass(frozen=True, slots=True)
class Noted:
    op: Op = Op.LOADED

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, payload: bytes) -> Noted:
        whole(payload, 0, "LOADED or MISSED")
        return cls()


@dataclass(frozen=True, slots=True)
class Discarded:
    """found: how many blocks a tier held of those that were named, a space each."""

    found: int
    op: Op = Op.DISCARD

    def encode(self) -> bytes:
        return _COUNT.pack(self.found)

    @classmethod
    def decode(cls, payload: bytes) -> Discarded:
        (found,) = unpack(_COUNT, payload, 0, "DISCARD")
        whole(payload, _COUNT.size, "DISCARD")
        return cls(found)


@dataclass(frozen=True, slots=True)
class StatsReply:
    stats: dict[str, Any]
    op: Op = Op.STATS

    def encode(self) -> bytes:
        return json.dumps(self.stats, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> StatsReply:
        try:
            stats = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise WireError(Status.BAD_FRAME, f"STATS is not JSON: {error}") from None
        if not isinstance(stats, dict):
            raise WireError(Status.BAD_FRAME, "STATS is not an object")
        return cls(stats)


Reply = (
    Welcome
    | Looked
    | StorePrepared
    | StoreCompleted
    | StoreFilled
    | LoadPrepared
    | LoadCompleted
    | Noted
    | Discarded
    | Located
    | StatsReply
)

_CLASSES: Final[dict[int, type[Reply]]] = {
    Op.PREFETCH: Looked,
    Op.MISSED: Noted,
    **{kind.__dataclass_fields__["op"].default: kind for kind in get_args(Reply)},
}


def decode_reply(op: int, payload: bytes) -> Reply:
    """The reply in a frame whose status is OK. Raises WireError."""
    found = _CLASSES.get(op)
    if found is None:
        raise WireError(Status.BAD_FRAME, f"operation {op} is unknown; use 1 to {len(_CLASSES)}")
    return found.decode(payload)
