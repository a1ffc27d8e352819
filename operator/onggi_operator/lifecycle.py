"""What happens when a pool's agents come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from onggi_operator.durations import duration_s


class WarmUntil(str, Enum):
    """What new pods wait for before they count as ready."""

    OFF = "Off"
    """Nothing; they get no gate."""
    DISK_ADOPTED = "DiskAdopted"
    RAMPED_UP = "RampedUp"


@dataclass(frozen=True, slots=True)
class WarmGate:
    """`timeout_s` opens it in any case, reckoned from when a kubelet took the pod."""

    until: WarmUntil = WarmUntil.OFF
    timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long a new agent takes to grow to its grant, and an agent that ends to write out;
    `disk_retention_s` 0 keeps what dead pods left on a node for ever."""

    ramp_up_s: int
    drain_deadline_s: int
    disk_retention_s: int
    warm_gate: WarmGate


def read_lifecycle(lifecycle: Mapping[str, Any]) -> Lifecycle:
    """From `spec.lifecycle`."""
    kept = lifecycle.get("diskRetention")
    return Lifecycle(
        ramp_up_s=duration_s(lifecycle["rampUp"]),
        drain_deadline_s=duration_s(lifecycle["drain"]["deadline"]),
        disk_retention_s=duration_s(kept) if kept else 0,
        warm_gate=WarmGate(
            until=WarmUntil(lifecycle["warmGate"]["until"]),
            timeout_s=duration_s(lifecycle["warmGate"]["timeout"]),
        ),
    )
