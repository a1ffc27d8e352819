"""One figure and its peer's, and the file they are written to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path


class Unit(str, Enum):
    SECONDS = "s"
    GIB_PER_S = "GiB/s"


@dataclass(frozen=True)
class Row:
    """name: what was measured, in words joined by slashes, the same from release to release."""

    name: str
    value: float
    unit: Unit
    peer: str
    peer_value: float | None
    """None: the peer could not take part here, and `peer` says why."""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer: more is better whatever the unit."""
        if self.peer_value is None:
            return None
        if self.unit is Unit.SECONDS:
            return self.peer_value / self.value
        return self.value / self.peer_value

    def as_json(self) -> dict[str, str | float | None]:
        return {**asdict(self), "unit": self.unit.value, "ratio": self.ratio}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
