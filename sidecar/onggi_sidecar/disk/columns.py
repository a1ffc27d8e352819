"""What a page table holds, as the engine takes it: columns, roughly least recently used first.

Exactly in order would mean to sort a million records and to fetch each from anywhere in memory.
Instead they are dealt out over a few ages, each with as many as the next, and keep the order of
their places within one. Records that were used together, as a run is, move together.
"""

from bisect import bisect_right
from itertools import groupby
from typing import Final

from onggi_core.engine.events import Adopted
from onggi_core.geometry import stride
from onggi_core.identity import DIGEST_BYTES
from onggi_core.index.digests import Digests
from onggi_core.index.places import Places
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import BLOCK_BYTES, BLOCK_RECORDS, RECORD_BYTES
from onggi_sidecar.disk.scan import Region, Scanned

AGES: Final = 64
"""So what is evicted first after a restart is among the oldest 1.6 parts in 100."""
SAMPLES_MAX: Final = 65_536
"""Uses looked at to tell the ages apart: a thousand for each."""

_WORD_BYTES: Final = 8
_PARENT_OFFSET: Final = DIGEST_BYTES
_CHECKSUM_OFFSET: Final = 2 * DIGEST_BYTES


class Rows:
    """Records of one space, packed, and where their pages lie."""

    __slots__ = ("places", "records")

    def __init__(self, stride_bytes: int) -> None:
        self.records = bytearray()
        self.places = Places(stride_bytes)

    def add(self, records: memoryview, place: int) -> None:
        """Records of pages that lie one after the other from `place` on."""
        self.records += records
        self.places.add(place, len(records) // RECORD_BYTES)

    def take(self, other: "Rows") -> None:
        self.records += other.records
        self.places.take(other.places)
        other.records.clear()

    def event(self, spec: SpaceSpec) -> Adopted:
        return Adopted(
            spec,
            keys=_digests(self.records, 0),
            parents=_digests(self.records, _PARENT_OFFSET),
            places=self.places,
            checksums=_digests(self.records, _CHECKSUM_OFFSET),
        )


def _digests(records: bytearray, offset: int) -> Digests:
    """One field of packed records, by words: no digest becomes an object."""
    raw = bytearray(len(records) // RECORD_BYTES * DIGEST_BYTES)
    words, into = memoryview(records).cast("Q"), memoryview(raw).cast("Q")
    for word in range(DIGEST_BYTES // _WORD_BYTES):
        row = words[offset // _WORD_BYTES + word :: RECORD_BYTES // _WORD_BYTES]
        into[word :: DIGEST_BYTES // _WORD_BYTES] = row
    return Digests(raw)


def adopted_columns(scanned: Scanned, spaces: dict[int, SpaceSpec]) -> list[Adopted]:
    """The live records of `spaces`, one event a space. Lets go of those in `scanned`."""
    bounds = _bounds(scanned)
    dealt = {
        number: [Rows(stride(spec.page_bytes)) for _ in range(AGES)]
        for number, spec in spaces.items()
    }
    for region in scanned.regions.values():
        first_place = region.number * scanned.segment_bytes
        for block in range(len(region.blocks) // BLOCK_BYTES):
            _deal(region, block, first_place, bounds, dealt)
        region.blocks.clear()
    events = []
    for number, by_age in dealt.items():
        rows, *later = by_age
        for of_age in later:
            rows.take(of_age)
        if len(rows.places):
            events.append(rows.event(spaces[number]))
    return events


def _deal(
    region: Region, block: int, first_place: int, bounds: list[int], dealt: dict[int, list[Rows]]
) -> None:
    """Give a block's records to their spaces and ages."""
    begin = block * BLOCK_RECORDS
    records, place = region.records(block), first_place + begin * region.stride_bytes
    uses = region.uses[begin : begin + BLOCK_RECORDS]
    if uses != uses[:1] * len(uses):
        ages = [bisect_right(bounds, use) for use in (min(uses), max(uses))]
        if ages[0] == ages[1]:  # of one age, whatever the uses
            uses = uses[:1] * len(uses)
    number = region.number_of(block)
    if number is not None and len(uses) == BLOCK_RECORDS and uses == uses[:1] * len(uses):
        if number in dealt:
            dealt[number][bisect_right(bounds, uses[0])].add(records, place)
        return
    at = 0
    for (number, use), same in groupby(zip(region.numbers(block), uses, strict=False)):
        end = at + len(tuple(same))
        if number in dealt:
            some = records[at * RECORD_BYTES : end * RECORD_BYTES]
            rows = dealt[number][bisect_right(bounds, use)]
            rows.add(some, place + at * region.stride_bytes)
        at = end


def _bounds(scanned: Scanned) -> list[int]:
    """Uses that part the records into AGES of about one size."""
    regions = scanned.regions.values()
    step = max(1, sum(len(region.uses) for region in regions) // SAMPLES_MAX)
    sample = sorted(use for region in regions for use in region.uses[::step] if use)
    return [sample[len(sample) * age // AGES] for age in range(1, AGES)] if sample else []
