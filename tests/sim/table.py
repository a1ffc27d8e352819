"""What the disk tier wrote down about itself, and what of it the next life finds.

The rules are those of docs/formats.md: a record for each place, written after the page's data; what
is to be forgotten waits in memory and is written before the next record; a segment holds pages of
one size, and giving it to another frees its records first. Faults:

  lost forgetting  the agent dies with places in memory that were to be freed: their records stand
  reordered        the machine dies: of the last RECENT_RECORDS records each may be as it was before
  damaged record   any record may be unreadable: its CRC fails and its place counts as free
  stale record     a record of long ago stands in its place again: a block restored from a copy
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, NamedTuple

from tests.sim.disk import Disk

from onggi_core.engine.actions import NoteUses
from onggi_core.engine.events import Adopted
from onggi_core.geometry import stride
from onggi_core.wire.requests import SpaceSpec

RECENT_RECORDS: Final = 16
STALE_KEPT: Final = 64


class Record(NamedTuple):
    space: SpaceSpec
    key: bytes
    parent: bytes
    checksum: bytes
    use: int
    count: int = 0


class Table:
    def __init__(self, rng: Random, segment_bytes: int) -> None:
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._records: dict[int, Record] = {}
        self._strides: dict[int, int] = {}
        self._forgotten: dict[int, None] = {}
        self._recent: deque[tuple[int, Record | None]] = deque(maxlen=RECENT_RECORDS)
        self._old: deque[tuple[int, Record]] = deque(maxlen=STALE_KEPT)
        self._use = 0

    def put(self, space: SpaceSpec, place: int, key: bytes, parent: bytes, proof: bytes) -> None:
        """A page is on disk: its record, and before it what was to be forgotten."""
        self.flush()
        self._assign(place // self._segment_bytes, stride(space.page_bytes))
        self._use += 1
        self._set(place, Record(space, key, parent, proof, self._use))

    def note(self, uses: NoteUses) -> None:
        """What was asked for: in its place's record, as the driver may be late with it."""
        self._use += 1
        for number, count in enumerate(uses.counts):
            place = uses.place + number * uses.stride_bytes
            if (record := self._records.get(place)) is not None:
                self._records[place] = record._replace(use=self._use, count=count)

    def forget(self, place: int) -> None:
        self._forgotten[place] = None

    def flush(self) -> None:
        for place in self._forgotten:
            self._set(place, None)
        self._forgotten.clear()

    def release(self, segment: int) -> None:
        """The segment's file goes, and its records."""
        self._strides.pop(segment, None)
        for place in [p for p in self._records if p // self._segment_bytes == segment]:
            del self._records[place]
        self._recent = deque(
            (x for x in self._recent if x[0] // self._segment_bytes != segment), RECENT_RECORDS
        )

    def lose(self, *, power: bool, damage: float) -> None:
        """The agent died. damage: the chance that any one record cannot be read any more."""
        rng = self._rng
        self._forgotten.clear()
        while power and self._recent:
            place, before = self._recent.pop()
            if rng.random() < 0.5:
                self._lay(place, before)
        for place in [p for p in self._records if rng.random() < damage]:
            del self._records[place]
        if self._old and rng.random() < damage * 10:
            self._lay(*rng.choice(self._old))

    def survivors(self, disk: Disk, segments: int) -> list[Adopted]:
        """What an agent that may use `segments` segments takes over, oldest use first; a block may
        be named at two places. The rest of the table is freed."""
        self._recent.clear()
        known = {n for n in disk.segments if n < segments}
        self._records = {
            place: record
            for place, record in self._records.items()
            if place // self._segment_bytes in known
        }
        columns: dict[bytes, tuple[SpaceSpec, list[tuple[int, Record]]]] = {}
        for place, record in sorted(self._records.items(), key=lambda item: item[1].use):
            rows = columns.setdefault(record.space.fingerprint, (record.space, []))[1]
            rows.append((place, record))
        return [
            Adopted(
                space,
                tuple(record.key for _, record in rows),
                tuple(record.parent for _, record in rows),
                tuple(place for place, _ in rows),
                tuple(record.checksum for _, record in rows),
                bytes(record.count for _, record in rows),
            )
            for space, rows in columns.values()
        ]

    def _assign(self, segment: int, size: int) -> None:
        if self._strides.get(segment) != size:
            self.release(segment)
            self._strides[segment] = size

    def _set(self, place: int, record: Record | None) -> None:
        before = self._records.get(place)
        self._recent.append((place, before))
        if before is not None and self._rng.random() < 0.05:
            self._old.append((place, before))
        self._lay(place, record)

    def _lay(self, place: int, record: Record | None) -> None:
        """A record as it lies in the file; one of another page size cannot be read there."""
        size = self._strides.get(place // self._segment_bytes)
        if record is None:
            self._records.pop(place, None)
        elif stride(record.space.page_bytes) == size:
            self._records[place] = record
