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
class WriteRun:
    """Copy a run of pages from the arena to disk, then note each in the page table.

    The pages lie one after the other on disk, page i at `place + i * stride_bytes`, all within
    one segment; place counts from 0 in the disk tier. offsets: where each lies in the arena file;
    they may scatter. The bytes of a page are `space.page_bytes`; a page on disk takes the stride.
    Ends with one WriteEnded, in the run's order; all its pages are pinned until then.
    """

    job: int
    space: SpaceSpec
    place: int
    stride_bytes: int
    offsets: tuple[int, ...]
    keys: tuple[bytes, ...]
    parents: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Copy a run of pages from disk into the arena and verify each. Ends with one ReadEnded.

    Pages lie as in WriteRun. prefetch: nobody waits for it yet; it goes after those that are
    waited for.
    """

    job: int
    space: SpaceSpec
    place: int
    stride_bytes: int
    offsets: tuple[int, ...]
    keys: tuple[bytes, ...]
    checksums: tuple[bytes, ...]
    prefetch: bool


@dataclass(frozen=True, slots=True)
class HurryRead:
    """A load waits now for the ReadRun of a prefetch: it goes before hints and writes, too."""

    job: int


@dataclass(frozen=True, slots=True)
class ForgetPage:
    """The disk tier no longer holds this block there; the page table should say so."""

    place: int
    space: SpaceSpec
    key: bytes


@dataclass(frozen=True, slots=True)
class NoteUses:
    """Pages on disk, one after the other within one segment, that were asked for a moment ago.
    counts: of each page how often so far, as policies count; a byte each."""

    place: int
    stride_bytes: int
    counts: bytes


@dataclass(frozen=True, slots=True)
class TouchExtent:
    """Make the memory of an extent the agent's own. Ends with ExtentTouched or ExtentRefused."""

    number: int


@dataclass(frozen=True, slots=True)
class ReleaseExtent:
    """The extent is empty and offered to nobody: give its memory back. It may be touched again."""

    number: int


@dataclass(frozen=True, slots=True)
class ReleaseSegment:
    """The disk segment is empty and withdrawn: remove its file. It may be made again."""

    number: int


Action = (
    Answer
    | Refuse
    | WriteRun
    | ReadRun
    | HurryRead
    | ForgetPage
    | NoteUses
    | TouchExtent
    | ReleaseExtent
    | ReleaseSegment
)
