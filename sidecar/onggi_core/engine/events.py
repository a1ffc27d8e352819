"""What may happen to the engine. The shell makes these; their order is the truth."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from onggi_core.board.survey import Held
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
    """Every page of extent `number` (from 0) belongs to the agent now and can be offered, but those
    that an agent that died left there: `held`."""

    number: int
    held: Sequence[Held] = ()


@dataclass(frozen=True, slots=True)
class ExtentRefused:
    """Extent `number` could not be touched: the node or the volume has no memory for it now."""

    number: int


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """What the tiers may hold from now on: at most Facts.extents and Facts.segments."""

    extents: int
    segments: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Blocks of one space found on disk, least recently used first, as columns of one length.

    places: byte offsets in the disk tier. checksums: of the pages, by their records. Sent
    before any request.
    counts: how often each was asked for again, as far as policies count; empty: none was.
    ages: where in the columns each age ends, the oldest first; what is of one age in any space
    counts as used together. Empty: all are of the first.
    """

    space: SpaceSpec
    keys: Sequence[bytes]
    parents: Sequence[bytes]
    places: Sequence[int]
    checksums: Sequence[bytes]
    counts: bytes = b""
    ages: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """A WriteRun is over: how, for each page in the run's order.

    checksums: of what was written; b"" where the outcome is not DONE.
    """

    job: int
    outcomes: tuple[IoOutcome, ...]
    checksums: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """A ReadRun is over and touches its arena pages no more. DONE means verified."""

    job: int
    outcomes: tuple[IoOutcome, ...]


@dataclass(frozen=True, slots=True)
class ModeSet:
    mode: Mode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by. Sent a few times a second; leases and waits end on it."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """A moment with nothing else to do, sent while the engine is busy: a part of what it put off
    to be quick."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nobody wants anything, sent while the engine is curious: a part of what serves no request."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The agent was told to end: waiting loads are answered, nothing more is admitted."""


Event = (
    SessionOpened
    | SessionClosed
    | Asked
    | ExtentTouched
    | ExtentRefused
    | BudgetSet
    | Adopted
    | WriteEnded
    | ReadEnded
    | ModeSet
    | Tick
    | GoOn
    | Idle
    | Stopping
)
