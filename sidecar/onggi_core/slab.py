"""Room in a tier: regions of equal size, each given to one page size when first needed.

An arena extent and a disk segment are both regions. Pages of one size share regions, so freeing
one always makes room for another of its size, and a region whose pages are all free can go to
another size. Pages asked for together get places in a row, the lowest that fit, so that a chain of
blocks lies in one run and moves as one chunk.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from onggi_core.errors import BadRequest, IllegalMove
from onggi_core.index.places import rows_of
from onggi_core.region import FREE_PAGE, RETIRED, ROOM, Region

REGIONS_TRIED: Final = 4
"""Regions searched for a run as long as asked, lowest first, before a shorter one will do."""


class Slab:
    """Hands out places (byte offsets from 0) of given strides within regions of `region_bytes`."""

    def __init__(self, region_bytes: int) -> None:
        self.region_bytes = region_bytes
        self._spare: list[int] = []
        self._regions: dict[int, Region] = {}
        """Regions given to a page size."""
        self._with_room: dict[int, list[int]] = {}
        """stride -> a heap of its regions that may have a free page."""
        self._empty: set[int] = set()
        """Given to a page size, but without a page in use."""
        self._free: dict[int, int] = {}
        """stride -> free pages in regions that are not withdrawn."""
        self._withdrawn: set[int] = set()

    # ---- pages

    def take(self, stride: int, owners: Sequence[int]) -> tuple[int, int] | None:
        """Places in a row for the first of `owners`, at least one: the lowest place and how many;
        or None when regions are full."""
        while not self._free.get(stride):
            if not self._give_region(stride):
                return None
        number, index, count = self._find(stride, len(owners))
        region = self._regions[number]
        region.give(index, owners[:count])
        self._free[stride] -= count
        self._empty.discard(number)
        return region.begin + index * stride, count

    def room(self, stride: int) -> int:
        """Pages of `stride` bytes that take() would find without anything being evicted."""
        empty = len(self._spare) + sum(
            1 for number in self._empty if self._regions[number].stride != stride
        )
        return self._free.get(stride, 0) + empty * (self.region_bytes // stride)

    def give_back(self, place: int, count: int = 1) -> None:
        """The places of `count` pages in a row, within one region, are free again."""
        number, region, index = self._at(place)
        region.take_back(index, count)
        if number not in self._withdrawn:
            self._free[region.stride] += count
            self._queue(number, region)
            if not region.used and not region.retired:
                self._empty.add(number)

    def disown(self, place: int, owner: int) -> None:
        """The page's block left it, but nobody else may have it: QUARANTINED or RETIRED."""
        _, region, index = self._at(place)
        region.set_owners(index, (owner,))
        region.retired += owner == RETIRED

    def pass_on(self, place: int, owners: Sequence[int]) -> None:
        """Pages of a room, in a row within one region, go over to `owners`. Raises IllegalMove,
        with nothing changed, if one is in no room."""
        _, region, index = self._at(place)
        if region.owners_of(index, len(owners)) != array("i", (ROOM,)).tobytes() * len(owners):
            raise IllegalMove("page", "in no room", "FILLED")
        region.set_owners(index, owners)

    def adopt(self, stride: int, places: Sequence[int], owners: Sequence[int]) -> bool:
        """Pages of an earlier life, each with its owner; their regions are spare until now or of
        this stride. False, with no page given, where a place comes twice. Raises BadRequest for a
        place that is not a free page of this stride, and gives none then either."""
        rows = list(self._rows(stride, places))
        for number, index, begin, end in rows:
            if not self._takes(number, stride, index, end - begin):
                raise BadRequest("places", places[begin], f"use free pages of {stride} bytes")
        for done, (number, index, begin, end) in enumerate(rows):
            region = self._assigned(number, stride)
            if region.owners_of(index, end - begin) != FREE_PAGE * (end - begin):
                for _, _, start, stop in rows[:done]:
                    self.give_back(places[start], stop - start)
                return False
            region.give(index, owners[begin:end])
            self._free[stride] -= end - begin
            self._empty.discard(number)
        return True

    def _rows(self, stride: int, places: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
        """Places that lie one after the other, within one region: its number, the first page, and
        where in `places` the row begins and ends."""
        whole = max(1, self.region_bytes // stride)
        for first, end in rows_of(stride, places):
            begin = first
            while begin < end:
                number, within = divmod(places[begin], self.region_bytes)
                index = within // stride if not within % stride else whole
                count = max(1, min(end - begin, whole - index))
                yield number, index, begin, begin + count
                begin += count

    # ---- regions

    def add_region(self, number: int) -> None:
        """Makes one more region available. Raises BadRequest if it already is."""
        if number in self._regions or number in self._spare or number in self._withdrawn:
            raise BadRequest("region", number, "each is added once")
        heapq.heappush(self._spare, number)

    def withdraw(self, number: int) -> None:
        """Hands out no more places of a region until `restore`; pages in it stay."""
        if number in self._withdrawn:
            return
        self._withdrawn.add(number)
        if number in self._spare:
            self._spare.remove(number)
            heapq.heapify(self._spare)
        elif (region := self._regions.get(number)) is not None:
            self._free[region.stride] -= region.free
            self._empty.discard(number)

    def restore(self, number: int) -> None:
        """A withdrawn region may be used again."""
        self._withdrawn.remove(number)
        region = self._regions.get(number)
        if region is None:
            heapq.heappush(self._spare, number)
            return
        self._free[region.stride] += region.free
        self._queue(number, region)
        if not region.used and not region.retired:
            self._empty.add(number)

    def remove_region(self, number: int) -> None:
        """A withdrawn region without a page in use is no longer there; it may be added again."""
        if used := self.used_in(number):
            raise BadRequest("region", number, f"{used} pages of it are in use")
        self._regions.pop(number, None)
        self._withdrawn.remove(number)

    def regions_of_others(self, stride: int) -> list[int]:
        """Regions given to other page sizes: what may be emptied for this one. Those with a retired
        page keep their size, so emptying them would make no room."""
        return [
            number
            for number, region in self._regions.items()
            if region.stride != stride and not region.retired and number not in self._withdrawn
        ]

    def owners_in(self, number: int, begin: int = 0, count: int | None = None) -> array[int]:
        """Who owns the pages of a region, in order from page `begin`: blocks, or why none does."""
        region = self._regions.get(number)
        if region is None:
            return array("i")
        end = None if count is None else (begin + count) << 2
        return array("i", bytes(region.owners[begin << 2 : end]))

    def pages_in(self, number: int) -> int:
        region = self._regions.get(number)
        return region.pages if region is not None else 0

    def used_in(self, number: int) -> int:
        region = self._regions.get(number)
        return region.used if region is not None else 0

    def owner(self, place: int) -> int:
        _, region, index = self._at(place)
        return region.owner(index)

    def all_rest(self, stride: int) -> bool:
        """Whether a page of `stride` bytes that goes would leave no place to anybody: all regions
        of that size are withdrawn."""
        if not self._withdrawn:
            return False
        return all(
            number in self._withdrawn
            for number, region in self._regions.items()
            if region.stride == stride
        )

    @property
    def spare(self) -> tuple[int, ...]:
        """Regions given to no page size yet."""
        return tuple(self._spare)

    # ---- inside

    def _at(self, place: int) -> tuple[int, Region, int]:
        number = place // self.region_bytes
        region = self._regions[number]
        return number, region, (place - region.begin) // region.stride

    def _find(self, stride: int, count: int) -> tuple[int, int, int]:
        """Region, page and length of the lowest run that fits. The stride has a free page."""
        heap = self._with_room[stride]
        wanted = whole = min(count, self.region_bytes // stride)
        while (found := self._run_in(heap, stride, wanted)) is None:
            if self._spare and wanted == whole:
                self._assign(heapq.heappop(self._spare), stride)
            else:
                wanted = (wanted + 1) // 2
        return *found, wanted

    def _run_in(self, heap: list[int], stride: int, count: int) -> tuple[int, int] | None:
        """The lowest run of `count` free pages in one of a few regions: region and page."""
        while not self._has_room(heap[0], stride):
            self._unqueue(heapq.heappop(heap), stride)
        for number in sorted(heap[:REGIONS_TRIED]):
            if self._has_room(number, stride):
                region = self._regions[number]
                index = region.find(count) if region.free >= count else -1
                if index >= 0:
                    return number, index
        return None

    def _has_room(self, number: int, stride: int) -> bool:
        region = self._regions.get(number)
        fits = region is not None and region.stride == stride and region.free > 0
        return fits and number not in self._withdrawn

    def _unqueue(self, number: int, stride: int) -> None:
        region = self._regions.get(number)
        if region is not None and region.stride == stride:
            region.queued = False

    def _queue(self, number: int, region: Region) -> None:
        if region.free and not region.queued:
            region.queued = True
            heapq.heappush(self._with_room[region.stride], number)

    def _give_region(self, stride: int) -> bool:
        if stride > self.region_bytes:
            return False
        if not self._spare:
            others = (n for n in self._empty if self._regions[n].stride != stride)
            empty = min(others, default=None)
            if empty is None:
                return False
            region = self._regions.pop(empty)
            self._free[region.stride] -= region.free
            self._empty.discard(empty)
            heapq.heappush(self._spare, empty)
        self._assign(heapq.heappop(self._spare), stride)
        return True

    def _assign(self, number: int, stride: int) -> None:
        region = Region(number * self.region_bytes, stride, self.region_bytes // stride)
        self._regions[number] = region
        self._free[stride] = self._free.get(stride, 0) + region.free
        self._with_room.setdefault(stride, [])
        self._queue(number, region)
        self._empty.add(number)

    def _takes(self, number: int, stride: int, index: int, count: int) -> bool:
        """Whether `count` pages from `index` on may be adopted in a region."""
        region = self._regions.get(number)
        if region is None:
            return number in self._spare and index + count <= max(1, self.region_bytes // stride)
        free = region.owners_of(index, count) == FREE_PAGE * count
        return region.stride == stride and free

    def _assigned(self, number: int, stride: int) -> Region:
        if number not in self._regions:
            self._spare.remove(number)
            heapq.heapify(self._spare)
            self._assign(number, stride)
        return self._regions[number]
