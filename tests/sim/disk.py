"""A disk that fails as disks do.

The fault model, all of it drawn from the world's seed:

  torn write       the agent dies while a page is written: a part of it arrived, cut anywhere
  reordered write  the machine dies: of the last RECENT_WRITES pages written each may never have
                   arrived, whichever came first (no fsync is needed for data, so none is assumed)
  lost write       the device says done and wrote nothing
  bit flip         a byte somewhere on a segment changes by itself
  swapped pages    two places exchange their bytes: misdirected writes
  EIO              a page's read or write fails, and what it was to fill holds rubbish
  bad place        from some write on every write and read of that place fails
  ENOSPC           no new segment can be made, for a while
  slow             every job takes a hundred times as long, for a while
  hang             no job ends, for a while
  abandoned        the driver gives a job up unbegun

What the model leaves out: a read that returns other bytes than the next one without the stored
bytes changing (the page is checked where it will be used, in the arena, after the read), and
damage that keeps a 128-bit checksum right.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.sim.config import SLOT, Faults
from tests.sim.pages import SCALE, scaled

RECENT_WRITES: Final = 32


class NoSpace(Exception):
    """The filesystem is full: the segment cannot be made."""


class DeviceFault(Exception):
    """EIO."""


@dataclass(slots=True)
class _Undo:
    segment: int
    at: int
    before: bytes


class Disk:
    """Segment files of one size. Outlives the agent."""

    def __init__(self, rng: Random, segment_slots: int, faults: Faults) -> None:
        self.segment_bytes = segment_slots * SLOT
        self.segments: dict[int, bytearray] = {}
        self.full = False
        self.slow = False
        self.hung = False
        self.happened: dict[str, int] = {}
        self._rng = rng
        self._faults = faults
        self._bad: set[int] = set()
        self._recent: deque[_Undo] = deque(maxlen=RECENT_WRITES)

    def heal(self) -> None:
        """Nothing goes wrong from now on; what did stays as it is."""
        self.full = self.slow = self.hung = False
        self._faults = Faults()
        self._bad.clear()

    def write(self, place: int, content: bytes) -> None:
        """Raises NoSpace, or DeviceFault with any part of the page written."""
        segment, at = self._find(place, make=True)
        if self._faulty(self._faults.bad_place):
            self._bad.add(place)
        if place in self._bad or self._faulty(self._faults.eio):
            self._note("eio")
            self.tear(place, content)
            raise DeviceFault
        if self._faulty(self._faults.lost_write):
            self._note("lost_write")
            return
        before = bytes(segment[at : at + len(content)])
        self._recent.append(_Undo(place // self.segment_bytes, at, before))
        segment[at : at + len(content)] = content

    def tear(self, place: int, content: bytes) -> None:
        """A beginning of the page arrives and the rest does not."""
        if place // self.segment_bytes not in self.segments:
            return
        segment, at = self._find(place, make=False)
        kept = self._rng.randrange(len(content) + 1)
        segment[at : at + kept] = content[:kept]
        self._note("torn")

    def read(self, place: int, page_bytes: int) -> bytes:
        """Raises DeviceFault."""
        if place in self._bad or self._faulty(self._faults.eio):
            self._note("eio")
            raise DeviceFault
        segment, at = self._find(place, make=False)
        return bytes(segment[at : at + scaled(page_bytes)])

    def abandons(self) -> bool:
        return self._faulty(self._faults.abandoned)

    def remove(self, number: int) -> None:
        del self.segments[number]
        self._recent = deque((u for u in self._recent if u.segment != number), RECENT_WRITES)

    def flip(self) -> None:
        if self.segments:
            segment = self._any_segment()
            segment[self._rng.randrange(len(segment))] ^= 1 << self._rng.randrange(8)
            self._note("flip")

    def swap(self) -> None:
        """Two slots of the disk exchange what they hold."""
        if self.segments:
            one, two = self._any_segment(), self._any_segment()
            size = SLOT // SCALE
            here = self._rng.randrange(len(one) // size) * size
            there = self._rng.randrange(len(two) // size) * size
            first, second = one[here : here + size], two[there : there + size]
            one[here : here + size], two[there : there + size] = second, first
            self._note("swap")

    def lose_power(self) -> None:
        """Each of the last writes arrived or did not, in any order."""
        while self._recent:
            undo = self._recent.pop()
            if self._rng.random() < 0.5 and undo.segment in self.segments:
                segment = self.segments[undo.segment]
                segment[undo.at : undo.at + len(undo.before)] = undo.before
                self._note("reordered")

    def _find(self, place: int, *, make: bool) -> tuple[bytearray, int]:
        number, within = divmod(place, self.segment_bytes)
        segment = self.segments.get(number)
        if segment is None:
            if not make or self.full:
                self._note("enospc")
                raise NoSpace
            segment = self.segments[number] = bytearray(scaled(self.segment_bytes))
        return segment, within // SCALE

    def _any_segment(self) -> bytearray:
        return self.segments[self._rng.choice(sorted(self.segments))]

    def _faulty(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance

    def _note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1
