"""What a page table holds, as the engine takes it: columns, roughly least recently used first.

Exactly in order would mean to sort a million records and to fetch each from anywhere in memory.
Instead they are dealt out over a few ages, each with as many as the next, and keep the order of
their places within one. Records that were used together, as a run is, move together.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, overload

from onggi_core.engine.events import Adopted
from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.disk.layout import BLOCK_BYTES, BLOCK_RECORDS, RECORD_BYTES
from onggi_sidecar.disk.scan import Region, Scanned

AGES: Final = 64
"""So what is evicted first after a restart is among the oldest 1.6 parts in 100."""
SAMPLES_MAX: Final = 65_536
"""Uses looked at to tell the ages apart: a thousand for each."""

_KEY: Final = struct.Struct(f"{DIGEST_BYTES}s{RECORD_BYTES - DIGEST_BYTES}x")
_PARENT_OFFSET: Final = DIGEST_BYTES
_CHECKSUM_OFFSET: Final = 2 * DIGEST_BYTES


class Digests(Sequence[bytes]):
    """One field of packed records: a million as objects take 57 MB, which only keys deserve,
    since the index keeps them."""

    def __init__(self, records: bytearray, offset: int) -> None:
        self._records = records
        self._offset = offset
        behind = RECORD_BYTES - offset - DIGEST_BYTES
        self._field = struct.Struct(f"{offset}x{DIGEST_BYTES}s{behind}x")

    def __len__(self) -> int:
        return len(self._records) // RECORD_BYTES

    def __iter__(self) -> Iterator[bytes]:
        return map(itemgetter(0), self._field.iter_unpack(self._records))

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        begin = range(len(self))[index] * RECORD_BYTES + self._offset
        return bytes(self._records[begin : begin + DIGEST_BYTES])


class Rows:
    """Records of one space, packed, and where their pages lie."""

    __slots__ = ("places", "records")

    def __init__(self) -> None:
        self.records = bytearray()
        self.places = array("q")

    def take(self, other: "Rows") -> None:
        self.records += other.records
        self.places.extend(other.places)
        other.records.clear()

    def event(self, spec: SpaceSpec) -> Adopted:
        return Adopted(
            spec,
            keys=list(map(itemgetter(0), _KEY.iter_unpack(self.records))),
            parents=Digests(self.records, _PARENT_OFFSET),
            places=self.places,
            checksums=Digests(self.records, _CHECKSUM_OFFSET),
        )


def adopted_columns(scanned: Scanned, spaces: dict[int, SpaceSpec]) -> list[Adopted]:
    """The live records of `spaces`, one event a space. Lets go of those in `scanned`."""
    bounds = _bounds(scanned)
    dealt = {number: [Rows() for _ in range(AGES)] for number in spaces}
    for region in scanned.regions.values():
        first_place = region.number * scanned.segment_bytes
        for block in range(len(region.blocks) // BLOCK_BYTES):
            _deal(region, block, first_place, bounds, dealt)
        region.blocks.clear()
    events = []
    for number, by_age in dealt.items():
        rows = Rows()
        for of_age in by_age:
            rows.take(of_age)
        if rows.places:
            events.append(rows.event(spaces[number]))
    return events


def _deal(
    region: Region, block: int, first_place: int, bounds: list[int], dealt: dict[int, list[Rows]]
) -> None:
    """Give a block's records to their spaces and ages."""
    begin, stride = block * BLOCK_RECORDS, region.stride_bytes
    records, numbers = region.records(block), region.numbers(block)
    uses = region.uses[begin : begin + BLOCK_RECORDS]
    ages = [bisect_right(bounds, use) for use in (min(uses), max(uses))]
    if ages[0] == ages[1]:  # of one age, whatever the uses
        uses = uses[:1] * len(uses)
    at = 0
    for (number, use), same in groupby(zip(numbers, uses, strict=False)):
        end = at + len(tuple(same))
        if number in dealt:
            rows = dealt[number][bisect_right(bounds, use)]
            rows.records += records[at * RECORD_BYTES : end * RECORD_BYTES]
            place = first_place + (begin + at) * stride
            rows.places.extend(range(place, place + (end - at) * stride, stride))
        at = end


def _bounds(scanned: Scanned) -> list[int]:
    """Uses that part the records into AGES of about one size."""
    regions = scanned.regions.values()
    step = max(1, sum(len(region.uses) for region in regions) // SAMPLES_MAX)
    sample = sorted(use for region in regions for use in region.uses[::step] if use)
    return [sample[len(sample) * age // AGES] for age in range(1, AGES)] if sample else []
