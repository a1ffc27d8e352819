"""What may happen to the engine. The shell makes these; their order is the truth."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from onggi_core.wire.replies import Mode
from onggi_core.wire.requests import Request, SpaceSpec


class IoOutcome(enum.Enum):
    """How a disk job ended."""

    DONE = "done"
    NO_SPACE = "no_space"
    """Write: the filesystem is full and the segment could not be made."""
    CORRUPT = "corrupt"
    """Read: the bytes are not those that were written."""
    FAULT = "fault"
    """The device failed, or the job was refused for good."""
    ABANDONED = "abandoned"
    """Not done: the queue was full or the agent is stopping. The place itself is fine."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A client connected; `session` is a number never used before in this life."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """Its stream ended: the client is gone, or no longer touches any page it was given."""

    session: int


@dataclass(frozen=True, slots=True)
class Asked:
    session: int
    request_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class ExtentTouched:
    """Every page of extent `number` (from 0) belongs to the agent now and can be offered."""

    number: int


@dataclass(frozen=True, slots=True)
class AdoptedBlock:
    """A block of an earlier life, by its journal record. place: byte offset in the disk tier."""

    key: bytes
    parent: bytes
    place: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Adopted:
    """Blocks of one space found on disk, least recently used first. Sent before any request."""

    space: SpaceSpec
    blocks: tuple[AdoptedBlock, ...]


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """A WritePage is over. checksum: of what was written, when DONE."""

    job: int
    outcome: IoOutcome
    checksum: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """A ReadPage is over and touches its arena page no more. DONE means verified."""

    job: int
    outcome: IoOutcome


@dataclass(frozen=True, slots=True)
class ModeSet:
    mode: Mode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by. Sent a few times a second; leases and waits end on it."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The agent was told to end: waiting loads are answered, nothing more is admitted."""


Event = (
    SessionOpened
    | SessionClosed
    | Asked
    | ExtentTouched
    | Adopted
    | WriteEnded
    | ReadEnded
    | ModeSet
    | Tick
    | Stopping
)
