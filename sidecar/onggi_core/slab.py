"""Room in a tier: regions of equal size, each given to one page size when first needed.

An arena extent and a disk segment are both regions. Pages of one size share regions, so freeing
one always makes room for another of its size, and a region whose pages are all free can go to
another size. Places are handed out lowest first, so that a chain of blocks lies in one run and
moves as one chunk.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from onggi_core.errors import BadRequest


class Slab:
    """Hands out places (byte offsets from 0) of given strides within regions of `region_bytes`."""

    def __init__(self, region_bytes: int) -> None:
        self.region_bytes = region_bytes
        self._spare: list[int] = []
        self._stride_of: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._used: dict[int, int] = {}
        """region -> pages in use."""
        self._resting: dict[int, list[int]] = {}
        """Withdrawn regions -> their free places."""

    def add_region(self, number: int) -> None:
        """Makes one more region available. Raises BadRequest if it already is."""
        if number in self._stride_of or number in self._spare or number in self._resting:
            raise BadRequest("region", number, "each is added once")
        heapq.heappush(self._spare, number)

    def take(self, stride: int) -> int | None:
        """The lowest free place for a page of `stride` bytes, or None when regions are full."""
        free = self._free.get(stride)
        if not free and not self._give_region(stride):
            return None
        place = heapq.heappop(self._free[stride])
        self._used[place // self.region_bytes] += 1
        return place

    def room(self, stride: int) -> int:
        """Pages of `stride` bytes that take() would find without anything being evicted."""
        empty = len(self._spare) + sum(
            1 for region in self.regions_of_others(stride) if not self._used[region]
        )
        return len(self._free.get(stride, ())) + empty * (self.region_bytes // stride)

    def give_back(self, place: int) -> None:
        """A page's place is free again; an empty region becomes spare when others need it."""
        region = place // self.region_bytes
        self._used[region] -= 1
        if region in self._resting:
            self._resting[region].append(place)
        else:
            heapq.heappush(self._free[self._stride_of[region]], place)

    def adopt(self, stride: int, places: Iterable[int]) -> None:
        """Marks places of earlier life as in use; their regions are spare until now or of this
        stride. Raises BadRequest for a place that is not a page of this stride."""
        taken = set(places)
        for region in sorted({place // self.region_bytes for place in taken}):
            if region in self._spare:
                self._spare.remove(region)
                heapq.heapify(self._spare)
                self._assign(region, stride)
        free = set(self._free.get(stride, ()))
        if wrong := taken - free:
            raise BadRequest("place", min(wrong), f"no free page of {stride} bytes begins there")
        self._free[stride] = sorted(free - taken)
        for place in taken:
            self._used[place // self.region_bytes] += 1

    def withdraw(self, region: int) -> None:
        """Hands out no more places of a region until `restore`; pages in it stay."""
        if region in self._spare:
            self._spare.remove(region)
            heapq.heapify(self._spare)
            self._resting[region] = []
        elif region not in self._resting:
            self._resting[region] = self._take_out(region)

    def restore(self, region: int) -> None:
        """A withdrawn region may be used again."""
        places = self._resting.pop(region)
        if not self._used.get(region, 0):
            self._stride_of.pop(region, None)
            self._used.pop(region, None)
            heapq.heappush(self._spare, region)
            return
        stride = self._stride_of[region]
        self._free[stride] = list(heapq.merge(sorted(self._free[stride]), sorted(places)))

    def regions_of_others(self, stride: int) -> list[int]:
        """Regions given to other page sizes: what may be emptied for this one."""
        return [
            region
            for region, held in self._stride_of.items()
            if held != stride and region not in self._resting
        ]

    def stride_of(self, region: int) -> int:
        return self._stride_of[region]

    def all_rest(self, stride: int) -> bool:
        """Whether a page of `stride` bytes that goes would leave no place to anybody: all regions
        of that size are withdrawn."""
        if not self._resting:
            return False
        return all(r in self._resting for r, held in self._stride_of.items() if held == stride)

    @property
    def spare(self) -> tuple[int, ...]:
        """Regions given to no page size yet."""
        return tuple(self._spare)

    def _give_region(self, stride: int) -> bool:
        if stride > self.region_bytes:
            return False
        if not self._spare:
            others = self.regions_of_others(stride)
            empty = next((r for r in others if not self._used[r]), None)
            if empty is None:
                return False
            self._unassign(empty)
            heapq.heappush(self._spare, empty)
        self._assign(heapq.heappop(self._spare), stride)
        return True

    def _assign(self, region: int, stride: int) -> None:
        self._stride_of[region] = stride
        self._used[region] = 0
        begin = region * self.region_bytes
        places = range(begin, begin + self.region_bytes - stride + 1, stride)
        self._free[stride] = list(heapq.merge(sorted(self._free.get(stride, ())), places))

    def _unassign(self, region: int) -> None:
        self._take_out(region)
        del self._stride_of[region]
        del self._used[region]

    def _take_out(self, region: int) -> list[int]:
        """Removes a region's places from the free ones and answers with them."""
        stride = self._stride_of[region]
        taken = [p for p in self._free[stride] if p // self.region_bytes == region]
        kept = [p for p in self._free[stride] if p // self.region_bytes != region]
        heapq.heapify(kept)
        self._free[stride] = kept
        return taken
