"""Whether a status is written now, and before which others. What people act on goes out at once;
counters that move all day go out once in an interval; what is the same is not written at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

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


@dataclass(frozen=True, slots=True)
class Planned:
    """What an object should say: `structure` changes when something happens; `figures` move all
    day, and are reckoned where they are needed: in most rounds nothing is due."""

    structure: Mapping[str, Any]
    figures: Callable[[], Mapping[str, Any]]

    def whole(self) -> dict[str, Any]:
        return {**self.structure, **self.figures()}


def due_of(
    wanted: Planned,
    present: Mapping[str, Any],
    *,
    since_write_s: float,
    happened_after_s: float,
    counted_after_s: float,
) -> tuple[Due, dict[str, Any]] | None:
    """What is to be written now, and why; None when nothing is. `since_write_s` is the time since
    this status was last written by us; what happened, and what only moved, waits until that is so
    much."""
    happened = _differs(wanted.structure, present)
    if since_write_s < (happened_after_s if happened else counted_after_s):
        return None
    status = wanted.whole()
    if happened:
        return Due.HAPPENED, status
    return (Due.COUNTED, status) if _differs(status, present) else None


def _differs(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    return any(value != present.get(key) for key, value in wanted.items())
