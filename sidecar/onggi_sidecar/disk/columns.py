"""What a page table holds, as the engine takes it: columns, roughly least recently used first.

Exactly in order would mean to sort a million records and to fetch each from anywhere in memory.
Instead they are dealt out over a few ages, each with as many as the next, and keep the order of
their places within one. Records that were used together, as a run is, move together.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Final

from onggi_core.engine.events import Adopted
from onggi_core.geometry import stride
from onggi_core.identity import DIGEST_BYTES
from onggi_core.index.digests import Digests
from onggi_core.index.places import Places
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    COUNT_OF,
    RECORD_BYTES,
    RECORDS_BYTES,
    USE_BYTES,
)
from onggi_sidecar.disk.scan import Region, Scanned

AGES: Final = 64
"""So what is evicted first after a restart is among the oldest 1.6 parts in 100."""
SAMPLES_MAX: Final = 65_536
"""Uses looked at to tell the ages apart: a thousand for each."""

_WORD_BYTES: Final = 8
_RECORD_WORDS: Final = RECORD_BYTES // _WORD_BYTES
_DIGEST_WORDS: Final = DIGEST_BYTES // _WORD_BYTES
_COLUMNS: Final = 3
"""Digests that a record begins with: key, parent, checksum."""


class Rows:
    """Records of one space and age, packed, and where their pages lie."""

    __slots__ = ("counts", "places", "records")

    def __init__(self, stride_bytes: int) -> None:
        self.records = bytearray()
        self.counts = bytearray()
        self.places = Places(stride_bytes)

    def add(self, records: memoryview, counts: bytes, place: int) -> None:
        """Records of pages that lie one after the other from `place` on."""
        self.records += records
        self.counts += counts
        self.places.add(place, len(counts))


def adopted_columns(scanned: Scanned, spaces: dict[int, SpaceSpec]) -> list[Adopted]:
    """The live records of `spaces`, one event a space. Lets go of those in `scanned`."""
    bounds = _bounds(scanned)
    dealt = {
        number: [Rows(stride(spec.page_bytes)) for _ in range(AGES)]
        for number, spec in spaces.items()
    }
    for region in scanned.regions.values():
        _deal(region, region.number * scanned.segment_bytes, bounds, dealt)
        region.blocks = bytearray()
    events = [_event(spaces[number], by_age) for number, by_age in dealt.items()]
    return [event for event in events if event.keys]


def _event(spec: SpaceSpec, by_age: list[Rows]) -> Adopted:
    """Lets go of the rows."""
    ages = list(accumulate(len(rows.counts) for rows in by_age))
    columns = [bytearray(ages[-1] * DIGEST_BYTES) for _ in range(_COLUMNS)]
    places = Places(stride(spec.page_bytes))
    for rows, end in zip(by_age, ages, strict=True):
        _gather(rows.records, columns, end - len(rows.counts))
        rows.records.clear()
        places.take(rows.places)
    keys, parents, checksums = map(Digests, columns)
    counts = b"".join([rows.counts for rows in by_age])
    return Adopted(spec, keys, parents, places, checksums, counts, ages)


def _gather(records: bytearray, columns: list[bytearray], first: int) -> None:
    """Digests of packed records into their columns, from row `first` on: by words, so that none
    becomes an object, and an age at a time, which a processor's cache holds."""
    words = memoryview(records).cast("Q")
    begin = first * _DIGEST_WORDS
    end = begin + len(words) // _RECORD_WORDS * _DIGEST_WORDS
    for number, column in enumerate(columns):
        into = memoryview(column).cast("Q")
        for word in range(_DIGEST_WORDS):
            row = words[number * _DIGEST_WORDS + word :: _RECORD_WORDS]
            into[begin + word : end : _DIGEST_WORDS] = row


def _deal(
    region: Region, first_place: int, bounds: list[int], dealt: dict[int, list[Rows]]
) -> None:
    """Give a region's records to their spaces and ages, a block at a time where it is of one."""
    blocks, uses = memoryview(region.blocks), region.uses
    raw = uses.tobytes()
    counts = raw[::USE_BYTES].translate(COUNT_OF)
    for block, number in enumerate(region.alike):
        begin = block * BLOCK_RECORDS
        records = blocks[block * BLOCK_BYTES : block * BLOCK_BYTES + RECORDS_BYTES]
        place = first_place + begin * region.stride_bytes
        some = raw[begin * USE_BYTES : (begin + BLOCK_RECORDS) * USE_BYTES]
        if number is not None and len(some) == BLOCK_RECORDS * USE_BYTES:
            if number not in dealt:
                continue
            age = bisect_right(bounds, uses[begin])
            if some == some[:USE_BYTES] * BLOCK_RECORDS or _of_one_age(
                bounds, age, uses[begin : begin + BLOCK_RECORDS]
            ):
                rows = dealt[number][age]
                rows.add(records, counts[begin : begin + BLOCK_RECORDS], place)
                continue
        ages = [bisect_right(bounds, use) for use in uses[begin : begin + BLOCK_RECORDS]]
        _deal_each(region, block, place, ages, counts[begin : begin + BLOCK_RECORDS], dealt)


def _of_one_age(bounds: list[int], age: int, uses: Sequence[int]) -> bool:
    return age == bisect_right(bounds, min(uses)) == bisect_right(bounds, max(uses))


def _deal_each(
    region: Region,
    block: int,
    place: int,
    ages: Sequence[int],
    counts: bytes,
    dealt: dict[int, list[Rows]],
) -> None:
    """As `_deal`, of a block whose records differ."""
    records, at = region.records(block), 0
    for (number, age), same in groupby(zip(region.numbers(block), ages, strict=False)):
        end = at + len(tuple(same))
        if number in dealt:
            some = records[at * RECORD_BYTES : end * RECORD_BYTES]
            dealt[number][age].add(some, counts[at:end], place + at * region.stride_bytes)
        at = end


def _bounds(scanned: Scanned) -> list[int]:
    """Uses that part the records into AGES of about one size."""
    regions = scanned.regions.values()
    step = max(1, sum(len(region.uses) for region in regions) // SAMPLES_MAX)
    sample = sorted(use for region in regions for use in region.uses[::step] if use)
    return [sample[len(sample) * age // AGES] for age in range(1, AGES)] if sample else []
