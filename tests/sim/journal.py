"""What the disk tier wrote down about itself, and what of it the next life finds.

The rules are those of docs/formats.md: data, then its record; drops wait in memory and are written
before the next put; the last record about a place holds, and the last put of a key; the last put
into a segment says which page size it holds. Faults:

  lost record     any record may be unreadable (torn, flipped): its CRC fails and it is skipped
  lost tail       the agent dies with drops unwritten; the machine dies and the last RECENT_RECORDS
                  may be gone, each by itself
  stale record    a record of long ago stands once more at the end: a file restored from a copy
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from tests.sim.disk import Disk

from onggi_core.engine.events import Adopted
from onggi_core.geometry import stride
from onggi_core.wire.requests import SpaceSpec

RECENT_RECORDS: Final = 16
STALE_KEPT: Final = 64
RECORDS_MAX: Final = 4096
"""Past it the journal is compacted to what holds."""


class Record(NamedTuple):
    """space None: a drop."""

    space: SpaceSpec | None
    place: int
    key: bytes
    parent: bytes = b""
    checksum: bytes = b""


class Journal:
    def __init__(self, rng: Random, segment_bytes: int) -> None:
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._records: list[Record] = []
        self._drops: list[Record] = []
        self._old: list[Record] = []

    def put(self, space: SpaceSpec, place: int, key: bytes, parent: bytes, checksum: bytes) -> None:
        self._flush()
        record = Record(space, place, key, parent, checksum)
        self._records.append(record)
        if self._rng.random() < 0.05:
            self._old.append(record)
            del self._old[:-STALE_KEPT]
        if len(self._records) > RECORDS_MAX:
            self._records = self._holding()

    def drop(self, place: int, key: bytes) -> None:
        self._drops.append(Record(None, place, key))

    def seal(self) -> None:
        self._flush()

    def lose(self, *, power: bool, damage: float) -> None:
        """The agent died. damage: the chance that any one record cannot be read any more."""
        self._drops.clear()
        rng = self._rng
        recent = len(self._records) - RECENT_RECORDS if power else len(self._records)
        self._records = [
            record
            for number, record in enumerate(self._records)
            if rng.random() >= damage and (number < recent or rng.random() < 0.6)
        ]
        if self._old and rng.random() < damage * 10:
            self._records.append(rng.choice(self._old))

    def survivors(self, disk: Disk, segments: int) -> list[Adopted]:
        """What an agent that may use `segments` segments takes over, oldest first."""
        columns: dict[bytes, tuple[SpaceSpec, list[Record]]] = {}
        for record in self._holding():
            number = record.place // disk.segment_bytes
            if record.space is not None and number < segments and number in disk.segments:
                rows = columns.setdefault(record.space.fingerprint, (record.space, []))[1]
                rows.append(record)
        return [
            Adopted(
                space,
                tuple(row.key for row in rows),
                tuple(row.parent for row in rows),
                tuple(row.place for row in rows),
                tuple(row.checksum for row in rows),
            )
            for space, rows in columns.values()
        ]

    def begin_again(self, adopted: list[Adopted]) -> None:
        """The next life goes on with the file; what it did not adopt is as good as dropped."""
        taken = {place for event in adopted for place in event.places}
        self._records = [r for r in self._holding() if r.place in taken]

    def _flush(self) -> None:
        self._records += self._drops
        self._drops.clear()

    def _holding(self) -> list[Record]:
        """The puts that hold, first written first: read backwards, as the disk tier does."""
        spoken: set[int] = set()
        held: set[tuple[bytes, bytes]] = set()
        strides: dict[int, int] = {}
        live: list[Record] = []
        for record in reversed(self._records):
            space = record.space
            if space is not None:
                segment, size = record.place // self._segment_bytes, stride(space.page_bytes)
                if strides.setdefault(segment, size) != size or record.place in spoken:
                    continue
                if (space.fingerprint, record.key) not in held:
                    held.add((space.fingerprint, record.key))
                    live.append(record)
            spoken.add(record.place)
        return live[::-1]
