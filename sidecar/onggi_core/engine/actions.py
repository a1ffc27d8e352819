"""What the engine asks of its shell. Each is one verb with all its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from onggi_core.wire.frame import Op, Status
from onggi_core.wire.replies import Reply
from onggi_core.wire.requests import SpaceSpec


@dataclass(frozen=True, slots=True)
class Answer:
    session: int
    request_id: int
    op: Op
    reply: Reply


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say no, in a sentence. A status in wire.frame.FATAL also closes the stream."""

    session: int
    request_id: int
    op: Op
    status: Status
    sentence: str


@dataclass(frozen=True, slots=True)
class WritePage:
    """Copy `length_bytes` from the arena to disk, then note it in the journal.

    arena_offset: in the arena file. place: in the disk tier, from 0, on a multiple of
    `stride_bytes` within its segment. Ends with WriteEnded; the page is pinned until then.
    """

    job: int
    arena_offset: int
    place: int
    stride_bytes: int
    length_bytes: int
    space: SpaceSpec
    key: bytes
    parent: bytes


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Copy a page from disk into the arena and verify it. Ends with ReadEnded.

    prefetch: nobody waits for it yet; it goes after those that are waited for.
    """

    job: int
    place: int
    arena_offset: int
    length_bytes: int
    space: SpaceSpec
    key: bytes
    checksum: bytes
    prefetch: bool


@dataclass(frozen=True, slots=True)
class ForgetPage:
    """The disk tier no longer holds this block there; the journal should say so."""

    place: int
    space: SpaceSpec
    key: bytes


Action = Answer | Refuse | WritePage | ReadPage | ForgetPage
