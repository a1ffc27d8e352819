"""What a client may ask, one class an operation, each with its own bytes."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

from onggi_core.wire.fields import (
    chains_from,
    chains_to,
    keys_from,
    keys_to,
    text_from,
    text_to,
    unpack,
    whole,
)
from onggi_core.wire.frame import (
    DISCARD_KEYS_MAX,
    MAGIC,
    SPACES_MAX,
    VERSION,
    Op,
    Status,
    WireError,
)
from onggi_core.wire.locate import Locate


@dataclass(frozen=True, slots=True)
class SpaceSpec:
    """One rank's keyspace: a fingerprint and the size of its pages."""

    fingerprint: bytes
    page_bytes: int
    block_tokens: int


class StoreOutcome(enum.IntEnum):
    SEALED = 1
    ABANDONED = 2


class LoadOutcome(enum.IntEnum):
    LOADED = 1
    FAILED = 2
    UNUSED = 3


_Outcome = TypeVar("_Outcome", bound=enum.IntEnum)

_HELLO: Final = struct.Struct("<4sHHIH")  # magic, lowest version, highest version, pid, spaces
_SPACE: Final = struct.Struct("<16sQI")
PREPARE: Final = struct.Struct("<H16s")  # space index, parent
_TICKET: Final = struct.Struct("<QB")
FILL: Final = struct.Struct("<QHI16s")  # ticket, space index, pages wanted, parent
_LOADED: Final = struct.Struct("<QBI")
WAIT: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Hello:
    pid: int
    engine: str
    spaces: tuple[SpaceSpec, ...]
    version_min: int = VERSION
    version_max: int = VERSION
    op: Op = Op.HELLO

    def encode(self) -> bytes:
        head = _HELLO.pack(MAGIC, self.version_min, self.version_max, self.pid, len(self.spaces))
        spaces = [_SPACE.pack(s.fingerprint, s.page_bytes, s.block_tokens) for s in self.spaces]
        return head + b"".join(spaces) + text_to(self.engine)

    @classmethod
    def decode(cls, payload: bytes) -> Hello:
        if payload[:4] != MAGIC:
            raise WireError(Status.BAD_FRAME, f"HELLO begins with {payload[:4]!r}, not {MAGIC!r}")
        _, low, high, pid, count = unpack(_HELLO, payload, 0, "HELLO")
        if not low <= VERSION <= high:
            raise WireError(
                Status.BAD_VERSION,
                f"client speaks protocol {low} to {high}; this agent speaks {VERSION}",
            )
        if not 1 <= count <= SPACES_MAX:
            raise WireError(
                Status.BAD_REQUEST, f"HELLO names {count} spaces; use 1 to {SPACES_MAX}"
            )
        at = _HELLO.size
        spaces = []
        for _ in range(count):
            spaces.append(SpaceSpec(*unpack(_SPACE, payload, at, "HELLO")))
            at += _SPACE.size
        engine, at = text_from(payload, at, "engine")
        whole(payload, at, "HELLO")
        return cls(pid, engine, tuple(spaces), low, high)


@dataclass(frozen=True, slots=True)
class Lookup:
    keys: tuple[bytes, ...]
    op: Op = Op.LOOKUP

    def encode(self) -> bytes:
        return keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> Lookup:
        return cls(keys_from(payload, 0, "LOOKUP"))


@dataclass(frozen=True, slots=True)
class Prefetch:
    keys: tuple[bytes, ...]
    op: Op = Op.PREFETCH

    def encode(self) -> bytes:
        return keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> Prefetch:
        return cls(keys_from(payload, 0, "PREFETCH"))


@dataclass(frozen=True, slots=True)
class StorePrepare:
    """Room for a chain of blocks: keys[0] follows `parent`, each other key the one before it."""

    space: int
    parent: bytes
    keys: tuple[bytes, ...]
    op: Op = Op.STORE_PREPARE

    def encode(self) -> bytes:
        return PREPARE.pack(self.space, self.parent) + keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> StorePrepare:
        space, parent = unpack(PREPARE, payload, 0, "STORE_PREPARE")
        return cls(space, parent, keys_from(payload, PREPARE.size, "STORE_PREPARE"))


@dataclass(frozen=True, slots=True)
class StoreComplete:
    ticket: int
    outcome: StoreOutcome
    op: Op = Op.STORE_COMPLETE

    def encode(self) -> bytes:
        return _TICKET.pack(self.ticket, self.outcome)

    @classmethod
    def decode(cls, payload: bytes) -> StoreComplete:
        ticket, outcome = unpack(_TICKET, payload, 0, "STORE_COMPLETE")
        whole(payload, _TICKET.size, "STORE_COMPLETE")
        return cls(ticket, _outcome(StoreOutcome, outcome))


@dataclass(frozen=True, slots=True)
class StoreFill:
    """The first pages of a room hold these blocks now, a chain after `parent`; the room ends with
    it. Ticket 0: no room, and no keys. wanted: pages of the next room; 0 for none."""

    ticket: int
    space: int
    wanted: int
    parent: bytes
    keys: tuple[bytes, ...]
    op: Op = Op.STORE_FILL

    def encode(self) -> bytes:
        head = FILL.pack(self.ticket, self.space, self.wanted, self.parent)
        return head + keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> StoreFill:
        ticket, space, wanted, parent = unpack(FILL, payload, 0, "STORE_FILL")
        return cls(ticket, space, wanted, parent, keys_from(payload, FILL.size, "STORE_FILL"))


@dataclass(frozen=True, slots=True)
class LoadPrepare:
    wait_ms: int
    keys: tuple[bytes, ...]
    op: Op = Op.LOAD_PREPARE

    def encode(self) -> bytes:
        return WAIT.pack(self.wait_ms) + keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> LoadPrepare:
        (wait_ms,) = unpack(WAIT, payload, 0, "LOAD_PREPARE")
        return cls(wait_ms, keys_from(payload, WAIT.size, "LOAD_PREPARE"))


@dataclass(frozen=True, slots=True)
class LoadComplete:
    """blocks: how many of the leading blocks the engine now uses; 0 unless LOADED."""

    ticket: int
    outcome: LoadOutcome
    blocks: int
    op: Op = Op.LOAD_COMPLETE

    def encode(self) -> bytes:
        return _LOADED.pack(self.ticket, self.outcome, self.blocks)

    @classmethod
    def decode(cls, payload: bytes) -> LoadComplete:
        ticket, outcome, blocks = unpack(_LOADED, payload, 0, "LOAD_COMPLETE")
        whole(payload, _LOADED.size, "LOAD_COMPLETE")
        return cls(ticket, _outcome(LoadOutcome, outcome), blocks)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Chains that the client found on the board, copied, and uses."""

    chains: tuple[tuple[bytes, ...], ...]
    op: Op = Op.LOADED

    def encode(self) -> bytes:
        return chains_to(self.chains)

    @classmethod
    def decode(cls, payload: bytes) -> Loaded:
        return cls(chains_from(payload, cls.__name__.upper()))


@dataclass(frozen=True, slots=True)
class Missed(Loaded):
    """Prompts that, as the board told, no tier holds the first block of: they are computed."""

    op: Op = Op.MISSED


@dataclass(frozen=True, slots=True)
class Discard:
    """Blocks that are worth nothing from now on, of all spaces, in any order."""

    keys: tuple[bytes, ...]
    op: Op = Op.DISCARD

    def encode(self) -> bytes:
        return keys_to(self.keys)

    @classmethod
    def decode(cls, payload: bytes) -> Discard:
        return cls(keys_from(payload, 0, "DISCARD", DISCARD_KEYS_MAX))


@dataclass(frozen=True, slots=True)
class StatsRequest:
    op: Op = Op.STATS

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, payload: bytes) -> StatsRequest:
        whole(payload, 0, "STATS")
        return cls()


Request = (
    Hello
    | Lookup
    | Prefetch
    | StorePrepare
    | StoreComplete
    | StoreFill
    | LoadPrepare
    | LoadComplete
    | Loaded
    | Missed
    | Discard
    | Locate
    | StatsRequest
)

_CLASSES: Final[dict[int, type[Request]]] = {
    kind.__dataclass_fields__["op"].default: kind for kind in get_args(Request)
}


def decode_request(op: int, payload: bytes) -> Request:
    """The request in a frame. Raises WireError; an unknown operation is BAD_FRAME (fatal)."""
    if (found := _CLASSES.get(op)) is None:
        raise WireError(Status.BAD_FRAME, f"operation {op} is unknown; use 1 to {len(_CLASSES)}")
    return found.decode(payload)


def _outcome(kind: type[_Outcome], value: int) -> _Outcome:
    try:
        return kind(value)
    except ValueError:
        right = ", ".join(f"{member.value} ({member.name})" for member in kind)
        raise WireError(Status.BAD_REQUEST, f"outcome is {value}; use {right}") from None
