"""How a disk budget is cut: segments, their headers and the journal all fit inside it.

Pure arithmetic, so that a test can walk it.
"""

from dataclasses import dataclass
from typing import Final

from onggi_sidecar.disk.record import RECORD_BYTES
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES

MIB: Final = 1024 * 1024
DISK_BYTES_MIN: Final = 16 * MIB
"""The smallest budget: a few segments and the journal's floor."""
SEGMENT_BYTES_MIN: Final = 4 * MIB
SEGMENT_BYTES_MAX: Final = 1024 * MIB
SEGMENTS_AIM: Final = 32
"""A budget is cut into about this many segments: enough that page sizes share it in fair steps,
few enough open files (a 4 TiB budget makes 4,000 of them)."""
JOURNAL_SHARE: Final = 32
"""One part in 32 of the budget is the journal's, half of it for the file that a compaction writes
beside the old one. That is two records a page down to pages of 11 KiB; real ones are larger."""
JOURNAL_BYTES_MIN: Final = MIB // 2
GROWTH_MAX: Final = 8
"""How many times its size at start a tier may be cut for: its journal then is a quarter of it."""
LOCK_AND_ROUNDING_BYTES: Final = 64 * 1024
"""The lock file, the probe at start, and files rounded up to filesystem blocks."""


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """segments files of segment_bytes (plus header); a journal of at most records_max records."""

    segment_bytes: int
    segments: int
    records_max: int


def nominal_segment_bytes(budget_bytes: int) -> int:
    """The segment size of a new tier: a power of two within the limits."""
    share = max(1, budget_bytes // SEGMENTS_AIM)
    return min(SEGMENT_BYTES_MAX, max(SEGMENT_BYTES_MIN, 1 << (share.bit_length() - 1)))


def plan_disk(budget_bytes: int, segment_bytes: int) -> DiskPlan:
    """Cut a budget. segment_bytes: a new tier's nominal size, or the one an old tier was made
    with. segments may be 0 when not even one fits."""
    journal_bytes = _journal_bytes(budget_bytes)
    room_bytes = budget_bytes - journal_bytes - LOCK_AND_ROUNDING_BYTES
    segments = max(0, room_bytes // (segment_bytes + SEGMENT_HEADER_BYTES))
    return DiskPlan(segment_bytes, segments, records_max=journal_bytes // 2 // RECORD_BYTES)


def segments_within(budget_bytes: int, *, cut_for_bytes: int, plan: DiskPlan) -> int:
    """Segments that a live budget allows in a tier that was cut for a larger one: the journal keeps
    the size it was cut to."""
    room_bytes = budget_bytes - _journal_bytes(cut_for_bytes) - LOCK_AND_ROUNDING_BYTES
    return min(plan.segments, max(0, room_bytes // (plan.segment_bytes + SEGMENT_HEADER_BYTES)))


def _journal_bytes(budget_bytes: int) -> int:
    return max(JOURNAL_BYTES_MIN, budget_bytes // JOURNAL_SHARE)
