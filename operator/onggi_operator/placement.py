"""How memory is shared out among a pool's agents, and where new ones are drawn to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from onggi_core.quantity import parse_quantity
from onggi_operator.durations import duration_s


class Rebalance(str, Enum):
    """Whether memory moves between the agents of a node."""

    AUTO = "Auto"
    DRY_RUN = "DryRun"
    """Planned and told, not done."""
    OFF = "Off"


class Scheduling(str, Enum):
    """Whether new pods are drawn to nodes that suit them."""

    PREFER = "Prefer"
    OFF = "Off"


class Resize(str, Enum):
    """Whether pods' requests follow what their agents are granted."""

    OFF = "Off"
    REQUESTS = "Requests"


@dataclass(frozen=True, slots=True)
class Placement:
    """`step_bytes` bounds what one agent wins or loses in `interval_s`; a move that promises less
    than `threshold_percent` more hits is not made."""

    rebalance: Rebalance
    interval_s: int
    step_bytes: int
    threshold_percent: int
    scheduling: Scheduling
    resize: Resize


def read_placement(placement: Mapping[str, Any]) -> Placement:
    """From `spec.placement`."""
    return Placement(
        rebalance=Rebalance(placement["rebalance"]),
        interval_s=duration_s(placement["interval"]),
        step_bytes=parse_quantity(str(placement["step"])),
        threshold_percent=placement["threshold"],
        scheduling=Scheduling(placement["scheduling"]),
        resize=Resize(placement["resize"]),
    )
