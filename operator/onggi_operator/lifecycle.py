"""What happens when a pool's agents come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onggi_operator.durations import duration_s


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long a new agent takes to grow to its grant, and an agent that ends to write out;
    `disk_retention_s` 0 keeps what dead pods left on a node for ever."""

    ramp_up_s: int
    drain_deadline_s: int
    disk_retention_s: int


def read_lifecycle(lifecycle: Mapping[str, Any]) -> Lifecycle:
    """From `spec.lifecycle`."""
    kept = lifecycle.get("diskRetention")
    return Lifecycle(
        ramp_up_s=duration_s(lifecycle["rampUp"]),
        drain_deadline_s=duration_s(lifecycle["drain"]["deadline"]),
        disk_retention_s=duration_s(kept) if kept else 0,
    )
