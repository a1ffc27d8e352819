"""Whether a status is written now. What people act on goes out at once; counters that move all day
go out once in an interval; what is the same is not written at all."""

from collections.abc import Mapping
from typing import Any, Final

STRUCTURE: Final = ("observedGeneration", "conditions", "pods", "skipped", "missed", "nodes")
"""Fields that change when something happens, not because time goes by."""

STRUCTURE_INTERVAL_S: Final = 2.0
"""A roll-out of a hundred pods becomes some writes, not hundreds."""


def is_due(
    wanted: Mapping[str, Any],
    present: Mapping[str, Any],
    *,
    since_write_s: float,
    counters_interval_s: float,
) -> bool:
    """`since_write_s` is the time since this pool's status was last written by us."""
    if _differs(wanted, present, STRUCTURE):
        return since_write_s >= STRUCTURE_INTERVAL_S
    if _differs(wanted, present, tuple(wanted)):
        return since_write_s >= counters_interval_s
    return False


def _differs(wanted: Mapping[str, Any], present: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return any(wanted.get(key) != present.get(key) for key in keys)
