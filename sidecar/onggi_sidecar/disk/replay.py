"""Read a journal, from its end: which blocks lie where.

The last record about a place holds, so the file is read backwards and a bitmap of 4 KiB places
remembers what has been spoken of: 32 MiB for a TiB of disk, where a dict of a million places would
take 160. A segment holds pages of one size at a time, so the last PUT into it says which size, and
records of another are from before. Nothing found here is believed beyond its CRC: a block becomes a
hit only when its page matches its checksum. A record that is torn, flipped or senseless is skipped
and counted.
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from onggi_core.geometry import ALIGN_BYTES
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.record import (
    FORMAT_VERSION,
    FRAME,
    HEADER_BODY,
    JOURNAL_MAGIC,
    PUT_BODY,
    RECORD_BYTES,
    SPACE_BODY,
    Kind,
)

_BATCH_RECORDS: Final = 4096
_AS_PUT: Final = struct.Struct("<IB3xIIQ16s16s16sQd")
"""FRAME with PUT_BODY in place: one unpacking a record instead of two, a third of the time."""
assert _AS_PUT.size == RECORD_BYTES
_PLACE: Final = 4
"""Of the fields of _AS_PUT: crc, kind, space, zero, place."""


class UnreadableJournal(ValueError):
    """Not a journal this version reads; the tier starts empty and says why."""


class Put(NamedTuple):
    """A PUT record's fields, as they lie in the file."""

    space: int
    zero: int
    place: int
    key: bytes
    parent: bytes
    checksum: bytes
    page_bytes: int
    last_use_s: float


@dataclass(slots=True)
class Replayed:
    """What a journal says. live: the PUTs that hold, first written first."""

    tier_uuid: bytes
    segment_bytes: int
    spaces: dict[int, SpaceSpec] = field(default_factory=dict)
    live: list[Put] = field(default_factory=list)
    records: int = 0
    damaged_records: int = 0
    torn_bytes: int = 0
    sealed: bool = False


def replay(raw: bytes, *, tier_bytes: int) -> Replayed:
    """Read a whole journal file. tier_bytes bounds the places believed.

    Raises UnreadableJournal when the header record is not this version's.
    """
    replayed = Replayed(*_read_header(raw))
    replayed.records, replayed.torn_bytes = divmod(len(raw), RECORD_BYTES)
    places = _Places(replayed.segment_bytes, tier_bytes)
    held: set[tuple[int, bytes]] = set()
    damaged, live, holds = 0, replayed.live, _Verdict.HOLDS
    put_kind = int(Kind.PUT)
    for record in _records_backwards(raw, replayed):
        kind = record[1]
        if kind == put_kind:
            put = Put._make(record[2:])
            verdict = places.put(put.place, put.page_bytes)
            if verdict is holds:
                name = put.space, put.key
                if name not in held:
                    held.add(name)
                    live.append(put)
            elif verdict is _Verdict.SENSELESS:
                damaged += 1
        elif kind == Kind.DROP:
            places.dropped(record[_PLACE])
        elif kind == Kind.SPACE:
            body = PUT_BODY.pack(*record[2:])
            number, block_tokens, page_bytes, fingerprint = SPACE_BODY.unpack(body)
            replayed.spaces.setdefault(number, SpaceSpec(fingerprint, page_bytes, block_tokens))
    live.reverse()
    replayed.damaged_records += damaged
    _keep_known(replayed)
    return replayed


def read_journal(path: Path, *, tier_bytes: int) -> Replayed:
    if path.exists() and not path.is_file():
        raise UnreadableJournal("the journal is not a regular file")
    return replay(path.read_bytes(), tier_bytes=tier_bytes)


def _records_backwards(raw: bytes, replayed: Replayed) -> Iterator[tuple[Any, ...]]:
    """Every whole record, read as a PUT: a DROP has its place where a PUT has it."""
    crc32, view = zlib.crc32, memoryview(raw)
    end = replayed.records * RECORD_BYTES
    last = True
    while end > 0:
        begin = max(0, end - _BATCH_RECORDS * RECORD_BYTES)
        at = end
        for record in reversed(list(_AS_PUT.iter_unpack(view[begin:end]))):
            at -= RECORD_BYTES
            if crc32(view[at + 4 : at + RECORD_BYTES]) != record[0]:
                replayed.damaged_records += 1
                continue
            if last:
                replayed.sealed = record[1] == Kind.SEAL
                last = False
            yield record
        end = begin


class _Verdict(enum.Enum):
    HOLDS = enum.auto()
    REPLACED = enum.auto()
    """A later record spoke of this place, or gave its segment to another page size."""
    SENSELESS = enum.auto()
    """No page of this size can lie there."""


class _Places:
    """What later records said about places, for a reader that goes backwards."""

    def __init__(self, segment_bytes: int, tier_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._tier_bytes = tier_bytes
        self._spoken = bytearray(tier_bytes // ALIGN_BYTES // 8 + 1)
        self._strides: dict[int, int] = {}

    def put(self, place: int, page_bytes: int) -> _Verdict:
        segment, within = divmod(place, self._segment_bytes)
        page_stride = -(-page_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if (
            page_stride < ALIGN_BYTES
            or place >= self._tier_bytes
            or within % page_stride
            or within + page_stride > self._segment_bytes
        ):
            return _Verdict.SENSELESS
        if self._strides.setdefault(segment, page_stride) != page_stride:
            return _Verdict.REPLACED
        return _Verdict.HOLDS if self._mark(place) else _Verdict.REPLACED

    def dropped(self, place: int) -> None:
        if place < self._tier_bytes:
            self._mark(place)

    def _mark(self, place: int) -> bool:
        """Note that something spoke of the place; whether that was the first word."""
        byte, bit = divmod(place // ALIGN_BYTES, 8)
        if self._spoken[byte] >> bit & 1:
            return False
        self._spoken[byte] |= 1 << bit
        return True


def _keep_known(replayed: Replayed) -> None:
    """Drop records whose space is not known or whose page size is not their space's."""
    sizes = {number: spec.page_bytes for number, spec in replayed.spaces.items()}
    kept = [put for put in replayed.live if sizes.get(put.space) == put.page_bytes]
    replayed.damaged_records += len(replayed.live) - len(kept)
    replayed.live = kept


def _read_header(raw: bytes) -> tuple[bytes, int]:
    if len(raw) < RECORD_BYTES:
        raise UnreadableJournal(f"the journal has {len(raw)} bytes, less than one record")
    crc, kind, body = FRAME.unpack_from(raw)
    magic, version, record_bytes, tier_uuid, segment_bytes = HEADER_BODY.unpack(body)
    if zlib.crc32(raw[4:RECORD_BYTES]) != crc or kind != Kind.HEADER or magic != JOURNAL_MAGIC:
        raise UnreadableJournal("the journal's header record is damaged")
    if version != FORMAT_VERSION or record_bytes != RECORD_BYTES:
        raise UnreadableJournal(
            f"the journal has format {version} with records of {record_bytes} bytes; this agent "
            f"reads {FORMAT_VERSION} with {RECORD_BYTES}"
        )
    return tier_uuid, segment_bytes
