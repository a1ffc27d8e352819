"""How a disk budget is cut: segments, their headers and the page table all fit inside it.

Pure arithmetic, so that a test can walk it.
"""

from dataclasses import dataclass
from typing import Final

from onggi_sidecar.disk.layout import REGIONS_OFFSET, TableLayout
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES

MIB: Final = 1024 * 1024
DISK_BYTES_MIN: Final = 16 * MIB
"""The smallest budget: a few segments and their part of the page table."""
SEGMENT_BYTES_MIN: Final = 4 * MIB
SEGMENT_BYTES_MAX: Final = 1024 * MIB
SEGMENTS_AIM: Final = 32
"""A budget is cut into about this many segments: enough that page sizes share it in fair steps,
few enough open files (a 4 TiB budget makes 4,000 of them)."""
GROWTH_MAX: Final = 8
"""How many times its size at start a tier may be cut for: segments are sized for the most it may
become, and at an eighth of that it still has four."""
LOCK_AND_ROUNDING_BYTES: Final = 64 * 1024
"""The lock file, the probe at start, and files rounded up to filesystem blocks."""


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """segments files of segment_bytes (plus header)."""

    segment_bytes: int
    segments: int

    @property
    def bytes(self) -> int:
        """What there is for pages."""
        return self.segments * self.segment_bytes


def nominal_segment_bytes(budget_bytes: int) -> int:
    """The segment size of a new tier: a power of two within the limits."""
    share = max(1, budget_bytes // SEGMENTS_AIM)
    return min(SEGMENT_BYTES_MAX, max(SEGMENT_BYTES_MIN, 1 << (share.bit_length() - 1)))


def plan_disk(budget_bytes: int, segment_bytes: int) -> DiskPlan:
    """Cut a budget. segment_bytes: a new tier's nominal size, or the one an old tier was made
    with. segments may be 0 when not even one fits.

    Each segment's part of the page table is counted at its largest, for pages of 4 KiB.
    """
    room_bytes = budget_bytes - REGIONS_OFFSET - LOCK_AND_ROUNDING_BYTES
    table_bytes = TableLayout(segment_bytes).region_bytes
    each_bytes = segment_bytes + SEGMENT_HEADER_BYTES + table_bytes
    return DiskPlan(segment_bytes, max(0, room_bytes // each_bytes))


def segments_within(budget_bytes: int, plan: DiskPlan) -> int:
    """Segments that a live budget allows in a tier that was cut for a larger one."""
    return min(plan.segments, plan_disk(budget_bytes, plan.segment_bytes).segments)
