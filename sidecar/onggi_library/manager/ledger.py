"""What fits into the tiers below the device, counted before anything is sent there: a manager's
values and a context's blocks alike.

A tier is cut into regions, and a region has pages of one size. The disk keeps a copy of everything,
so what fits is what one of the two can hold by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.engine.watermark import LOW_SHARE
from onggi_library.manager.pages import Cut

SPARE_REGIONS: Final = 1
"""Of a disk: room for a run that is written while another one's room is being freed."""


@dataclass(frozen=True, slots=True)
class Room:
    """Of one tier. spare: regions that its own upkeep needs."""

    region_bytes: int
    regions: int
    spare: int

    @property
    def nbytes(self) -> int:
        return self.region_bytes * max(0, self.regions - self.spare)

    def holds(self, pages: Counter[int]) -> bool:
        """pages: how many by their size. A size takes whole regions."""
        regions = 0
        for page_bytes, count in pages.items():
            each = self.region_bytes // page_bytes
            if not each:
                return False
            regions += -(-count // each)
        return regions <= self.regions - self.spare


def host_room(extent_bytes: int, arena_bytes: int) -> Room:
    """An arena keeps a 32nd of itself free for what comes."""
    extents = arena_bytes // extent_bytes
    return Room(extent_bytes, extents, max(1, -(-extents // LOW_SHARE)))


def disk_room(segment_bytes: int, disk_bytes: int) -> Room:
    segments = disk_bytes // segment_bytes if segment_bytes else 0
    return Room(segment_bytes, segments, SPARE_REGIONS)


def rooms_of(stats: Mapping[str, Any]) -> tuple[Room, Room]:
    """Host memory and disk of the agent whose figures these are."""
    return (
        host_room(stats["extent_bytes"], stats["arena_budget_bytes"]),
        disk_room(stats["segment_bytes"], stats["disk_bytes"]),
    )


class Ledger:
    """Pages by size: of what is kept, and of discarded ones until they are known to be
    gone. Not thread-safe."""

    def __init__(self, *rooms: Room) -> None:
        self._rooms = rooms
        self._live: Counter[int] = Counter()
        self._dying: Counter[int] = Counter()
        self.live_bytes = 0

    @property
    def room_bytes(self) -> int:
        """The most that can be kept, of pages of one size."""
        return max(room.nbytes for room in self._rooms)

    @property
    def anything_dying(self) -> bool:
        return bool(self._dying)

    def fits(self, cut: Cut) -> bool:
        wanted = self._live + self._dying
        wanted[cut.page_bytes] += cut.pages
        return any(room.holds(wanted) for room in self._rooms)

    def add(self, cut: Cut) -> None:
        self._live[cut.page_bytes] += cut.pages
        self.live_bytes += cut.nbytes

    def discard(self, cut: Cut) -> None:
        """Pages that were never added here (another process's) may be among them."""
        mine = min(cut.pages, self._live[cut.page_bytes])
        self._live[cut.page_bytes] -= mine
        self._dying[cut.page_bytes] += cut.pages
        self.live_bytes -= mine * cut.page_bytes

    def all_gone(self) -> None:
        """The discarded have left their pages."""
        self._dying.clear()
