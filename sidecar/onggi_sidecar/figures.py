"""One snapshot of the agent's figures, and the two reports made from it."""

from collections.abc import Mapping
from typing import Any

from onggi_core.engine.engine import Engine
from onggi_core.heartbeat import (
    FINGERPRINTS_MAX,
    Demand,
    Heartbeat,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
)
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.disk.tier import DiskTier
from onggi_sidecar.tally import Tally


def gather_figures(
    engine: Engine, disk: DiskTier | None, tally: Tally, *, io_deadline_s: float
) -> dict[str, Any]:
    """The engine's figures with the shell's beside them. Plane only."""
    figures = engine.stats()
    errors: dict[str, int] = dict(figures["errors"])
    for kind, count in dict(tally.faults).items():  # others may count one meanwhile
        errors[kind] = errors.get(kind, 0) + count
    if disk is not None:
        workers = disk.workers
        figures |= {
            "disk_jobs": workers.waiting,
            "disk_stuck_jobs": workers.stuck(longer_than_s=io_deadline_s),
            "disk_no_space": int(disk.segments.no_space),
            "disk_table_bytes": disk.table.file_bytes,
        }
        for kind, count in (
            ("disk_late", workers.counts.late),
            ("disk_queue_full", sum(workers.counts.refused.values())),
        ):
            if count:
                errors[kind] = count
    else:
        figures |= dict.fromkeys(
            ("disk_jobs", "disk_stuck_jobs", "disk_no_space", "disk_table_bytes"), 0
        )
    figures["errors"] = errors
    figures["refused_clients"] = tally.refused_clients
    figures["last_refusal"] = tally.last_refusal
    return figures


def make_heartbeat(
    figures: Mapping[str, Any],
    config: AgentConfig,
    *,
    sequence: int,
    draining: bool,
    told_bytes: int,
) -> Heartbeat:
    demand = figures["demand"]
    return Heartbeat(
        pool=config.pool,
        namespace=config.namespace,
        pod=config.pod_name,
        pod_uid=config.pod_uid or "unknown",
        node=config.node_name or "unknown",
        epoch=figures["epoch"],
        mode=Mode(figures["mode"]),
        capacity=TierBytes(figures["arena_budget_bytes"], figures["disk_budget_bytes"]),
        used=TierBytes(figures["host_used_bytes"], figures["disk_used_bytes"]),
        arena_ready_bytes=figures["arena_ready_bytes"],
        hits=TierBlocks(figures["hit_host_blocks"], figures["hit_disk_blocks"]),
        lookups=Lookups(
            figures["lookup_requests"], figures["lookup_blocks"], figures["miss_blocks"]
        ),
        tokens_saved=figures["tokens_saved"],
        evictions=figures["evicted_host_blocks"] + figures["evicted_disk_blocks"],
        errors=figures["errors"],
        fingerprints=tuple(figures["fingerprints"][:FINGERPRINTS_MAX]),
        clients=figures["sessions"],
        sequence=sequence,
        held=_held(figures, told_bytes),
        demand=Demand(
            asked_tokens=demand["asked_tokens"],
            curve=tuple((size_bytes, share) for size_bytes, share in demand["curve"]),
        ),
        pending_blocks=figures["pending_blocks"],
        draining=draining,
    )


def _held(figures: Mapping[str, Any], told_bytes: int) -> TierBytes:
    """What is taken of the node. Memory that leaves is the node's again once it has left; what is
    budgeted and not there yet may come at any moment. Figures may be of before the last budget was
    told: a plane that is busy gives the last ones it gave."""
    arriving = figures["arena_ready_bytes"] + figures["arena_coming_bytes"]
    return TierBytes(
        max(told_bytes, figures["arena_budget_bytes"], arriving) + figures["arena_leaving_bytes"],
        figures["disk_budget_bytes"] + figures["disk_leaving_bytes"],
    )
