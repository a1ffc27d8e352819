"""Figures with their peers and targets, and the file they are kept in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final


class Unit(str, Enum):
    SECONDS = "s"
    GIB_PER_S = "GiB/s"
    MIB = "MiB"
    BYTES = "bytes"
    MILLISECONDS = "ms"
    SHARE = "hit rate"
    TIMES = "times"
    PART = "of it"
    CORES = "cores"
    PER_SECOND = "a second"


DIGITS: Final = {
    "GiB/s": 2,
    "ms": 2,
    "us": 1,
    "s": 2,
    "hit rate": 4,
    "times": 3,
    "of it": 2,
    "cores": 3,
    "a second": 1,
}
"""Behind the point, of units that are not whole numbers."""
MORE_IS_BETTER: Final = frozenset({Unit.GIB_PER_S, Unit.SHARE, Unit.TIMES, Unit.PART})


def shown(value: float, unit: str) -> str:
    """`14.2 GiB/s`, `83.1 us`, `1.24 ms`, `557 bytes`."""
    scale, name = _scale(value, unit)
    return f"{value / scale:,.{DIGITS.get(name, 0)}f} {name}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """What a person would read `value` in: times are kept in seconds, however short."""
    if unit != Unit.SECONDS.value or value >= 1:
        return 1.0, unit
    return (1e-3, "ms") if value >= 1e-3 else (1e-6, "us")


@dataclass(frozen=True)
class Row:
    """One figure. name: words joined by slashes, the same from release to release. peers: what
    others did in the same run. absent: those that could not take part, and why."""

    name: str
    value: float
    unit: Unit
    peers: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def ratio(self, peer: str) -> float:
        """How many times better than the peer: more is better whatever the unit."""
        mine, theirs = self.value, self.peers[peer]
        if self.unit in MORE_IS_BETTER:
            return mine / theirs if theirs else float("inf")
        return theirs / mine if mine else float("inf")

    def as_json(self) -> dict[str, Any]:
        ratios = {peer: round(self.ratio(peer), 4) for peer in self.peers}
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit.value,
            "peers": dict(self.peers),
            "ratios": ratios,
            "not_measured": dict(self.absent),
        }


@dataclass(frozen=True)
class AtMost:
    """The value itself has a bound."""

    bound: float

    def met(self, row: Row) -> bool:
        return row.value <= self.bound

    def said(self, row: Row) -> str:
        scale, name = _scale(row.value, row.unit.value)
        return f"<= {self.bound / scale:g} {name}"


@dataclass(frozen=True)
class Against:
    """The ratio to a peer has one. A peer that did not take part cannot be beaten."""

    peer: str
    bound: float

    def met(self, row: Row) -> bool:
        return self.peer in row.peers and row.ratio(self.peer) >= self.bound

    def said(self, row: Row) -> str:
        del row
        return f">= {self.bound:g} of {self.peer}"


@dataclass(frozen=True)
class AtLeastPeerLess:
    """The value may be below the peer's by a margin in its own unit, and no more."""

    peer: str
    margin: float

    def met(self, row: Row) -> bool:
        return self.peer in row.peers and row.value >= row.peers[self.peer] - self.margin

    def said(self, row: Row) -> str:
        scale, name = _scale(row.value, row.unit.value)
        return f">= {self.peer} - {self.margin / scale:g} {name}"


Target = AtMost | Against | AtLeastPeerLess


@dataclass(frozen=True)
class Entry:
    """A figure with targets. rows: the same question at other sizes. how: what was called and
    what was counted, in a sentence or two."""

    row: Row
    targets: tuple[Target, ...]
    command: str
    how: str
    rows: tuple[Row, ...] = ()

    @property
    def meets(self) -> bool:
        return all(target.met(self.row) for target in self.targets)

    def as_json(self, date: str) -> dict[str, Any]:
        return {
            **self.row.as_json(),
            "target": "; ".join(target.said(self.row) for target in self.targets),
            "meets": self.meets,
            "command": self.command,
            "date": date,
            "how": self.how,
            "rows": [row.as_json() for row in self.rows],
        }


def read_result(path: Path) -> dict[str, Any]:
    """What earlier runs left; nothing if there is no such file. Raises ValueError for another
    file."""
    if not path.exists():
        return {"entries": {}}
    result: dict[str, Any] = json.loads(path.read_text())
    if not isinstance(result, dict) or not isinstance(result.get("entries"), dict):
        raise ValueError(f"{path} is not a result of this bench; remove it or name another")
    return result


def write_result(path: Path, entries: Sequence[Entry], facts: Mapping[str, Any]) -> None:
    """Put `entries` among those of earlier runs, each with its date, commit and load, and `facts`
    over theirs."""
    result = {**read_result(path), **facts}
    then = {name: facts[name] for name in ("commit", "load_average")}
    dated = {entry.row.name: entry.as_json(str(facts["date"])) | then for entry in entries}
    result["entries"] = {**result["entries"], **dated}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
