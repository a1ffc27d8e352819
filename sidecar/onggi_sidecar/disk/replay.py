"""Read a journal, from its end: which blocks lie where.

The last record about a place holds, so the file is read backwards and a bitmap of 4 KiB places
remembers what has been spoken of: 32 MiB for a TiB of disk, where a dict of a million places would
take 160. A segment holds pages of one size at a time, so the last PUT into it says which size, and
records of another are from before. Nothing found here is believed beyond its CRC: a block becomes a
hit only when its page matches its checksum. A record that is torn, flipped or senseless is skipped
and counted.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onggi_core.geometry import ALIGN_BYTES, stride
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.record import (
    DROP_BODY,
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


class UnreadableJournal(ValueError):
    """Not a journal this version reads; the tier starts empty and says why."""


@dataclass(slots=True)
class Replayed:
    """What a journal says. live: the PUT bodies that hold, first written first."""

    tier_uuid: bytes
    segment_bytes: int
    spaces: dict[int, SpaceSpec] = field(default_factory=dict)
    live: list[bytes] = field(default_factory=list)
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
    for kind, body in _records_backwards(raw, replayed):
        if kind == Kind.PUT:
            space, _, place, key, _, _, page_bytes, _ = PUT_BODY.unpack(body)
            if not places.sensible(place, page_bytes):
                replayed.damaged_records += 1
            elif places.first_word(place, page_bytes) and (space, key) not in held:
                held.add((space, key))
                replayed.live.append(body)
        elif kind == Kind.DROP:
            _, place, _ = DROP_BODY.unpack(body)
            places.dropped(place)
        elif kind == Kind.SPACE:
            number, block_tokens, page_bytes, fingerprint = SPACE_BODY.unpack(body)
            replayed.spaces.setdefault(number, SpaceSpec(fingerprint, page_bytes, block_tokens))
    replayed.live.reverse()
    _keep_known(replayed)
    return replayed


def read_journal(path: Path, *, tier_bytes: int) -> Replayed:
    return replay(path.read_bytes(), tier_bytes=tier_bytes)


def _records_backwards(raw: bytes, replayed: Replayed) -> Iterator[tuple[int, bytes]]:
    crc32, view = zlib.crc32, memoryview(raw)
    end = replayed.records * RECORD_BYTES
    last = True
    while end > 0:
        begin = max(0, end - _BATCH_RECORDS * RECORD_BYTES)
        at = end
        for crc, kind, body in reversed(list(FRAME.iter_unpack(view[begin:end]))):
            at -= RECORD_BYTES
            if crc32(view[at + 4 : at + RECORD_BYTES]) != crc:
                replayed.damaged_records += 1
                continue
            if last:
                replayed.sealed = kind == Kind.SEAL
                last = False
            yield kind, body
        end = begin


class _Places:
    """What later records said about places, for a reader that goes backwards."""

    def __init__(self, segment_bytes: int, tier_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._tier_bytes = tier_bytes
        self._spoken = bytearray(tier_bytes // ALIGN_BYTES // 8 + 1)
        self._strides: dict[int, int] = {}

    def sensible(self, place: int, page_bytes: int) -> bool:
        """Whether a page of this size can lie there at all."""
        if page_bytes < 1 or place >= self._tier_bytes:
            return False
        within, page_stride = place % self._segment_bytes, stride(page_bytes)
        return within % page_stride == 0 and within + page_stride <= self._segment_bytes

    def first_word(self, place: int, page_bytes: int) -> bool:
        """Whether nothing later spoke of this place or gave its segment to another size."""
        segment, page_stride = place // self._segment_bytes, stride(page_bytes)
        if self._strides.setdefault(segment, page_stride) != page_stride:
            return False
        return self._mark(place)

    def dropped(self, place: int) -> None:
        if place < self._tier_bytes:
            self._mark(place)

    def _mark(self, place: int) -> bool:
        byte, bit = divmod(place // ALIGN_BYTES, 8)
        if self._spoken[byte] >> bit & 1:
            return False
        self._spoken[byte] |= 1 << bit
        return True


def _keep_known(replayed: Replayed) -> None:
    """Drop records whose space is not known or whose page size is not their space's."""
    sizes = {number: spec.page_bytes for number, spec in replayed.spaces.items()}
    kept = []
    for body in replayed.live:
        space, _, _, _, _, _, page_bytes, _ = PUT_BODY.unpack(body)
        if sizes.get(space) == page_bytes:
            kept.append(body)
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
