"""Whether a status is written now, and before which others. What people act on goes out at once;
counters that move all day go out once in an interval; what is the same is not written at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

STRUCTURE: Final = ("observedGeneration", "conditions", "pods", "skipped", "missed", "nodes")
"""Fields that change when something happens, not because time goes by."""

STRUCTURE_INTERVAL_S: Final = 2.0
"""A roll-out of a hundred pods becomes some writes, not hundreds."""

WRITES_PER_ROUND_MAX: Final = 32
"""What two seconds give (`kube.pace`): a round that wrote more would keep the next plan waiting."""

COUNTED_PER_ROUND_MIN: Final = 4
"""However much happens, counters are not left behind for ever."""


class Due(Enum):
    """Why a status is written now."""

    HAPPENED = 1
    COUNTED = 2
    """Nothing happened; what moves all day moved."""


Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[Made]):
    """A write that is due, and when its object was last written."""

    due: Due
    written_s: float
    write: Made


def first_of(waiting: Sequence[Waiting[Made]], at_most: int) -> list[Made]:
    """What is written this round: what people act on before counters, and of each those that
    waited longest. The others wait for the next round, and are longest then."""
    by_age = sorted(waiting, key=lambda one: one.written_s)
    happened = [one.write for one in by_age if one.due is Due.HAPPENED]
    counted = [one.write for one in by_age if one.due is Due.COUNTED]
    kept = min(len(counted), COUNTED_PER_ROUND_MIN, at_most)
    return (happened[: at_most - kept] + counted)[:at_most]


def why_due(
    wanted: Mapping[str, Any],
    present: Mapping[str, Any],
    *,
    since_write_s: float,
    counters_interval_s: float,
) -> Due | None:
    """None when it is not. `since_write_s` is the time since this pool's status was last written by
    us."""
    if _differs(wanted, present, STRUCTURE):
        return Due.HAPPENED if since_write_s >= STRUCTURE_INTERVAL_S else None
    if _differs(wanted, present, tuple(wanted)):
        return Due.COUNTED if since_write_s >= counters_interval_s else None
    return None


def _differs(wanted: Mapping[str, Any], present: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return any(wanted.get(key) != present.get(key) for key in keys)
