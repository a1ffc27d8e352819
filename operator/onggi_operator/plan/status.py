"""From a snapshot of a pool to the status it should have."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from onggi_core.heartbeat import TierBytes
from onggi_core.quantity import format_size
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.totals import Counters, agents_field, totals_fields
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.allocation import NOTHING_KNOWN, Allocation, quota_field
from onggi_operator.plan.census import Census, census
from onggi_operator.plan.conditions import Finding, Reason, Status, Type, written
from onggi_operator.plan.findings import findings
from onggi_operator.plan.nodes import ToldMove
from onggi_operator.plan.room import plan_room
from onggi_operator.plan.warm import plan_nodes
from onggi_operator.plan.writes import Planned

LISTED_MAX: Final = 20
"""Pods in `skipped` and `missed`, as in the schema: the newest tell what is wrong now."""

NOTHING: Final = "-"

MUST_BE_KNOWN: Final = (Type.ACCEPTED, Type.INJECTED, Type.READY)
"""Conditions of which Unknown is worth a reader's attention."""

SHOWN_WHEN_WELL: Final = (Reason.OBSERVING, Reason.PAUSED)
"""Nothing is wrong, and nothing is saved either: a reader should not wonder why."""


def plan_status(
    world: PoolSnapshot,
    *,
    now_s: float,
    now: str,
    node_uids: Mapping[str, str],
    moves: Sequence[ToldMove] = (),
    allocated: Allocation = NOTHING_KNOWN,
    rooms: Mapping[str, int] = MappingProxyType({}),
) -> Planned:
    """`now_s` is the monotonic time of heartbeats, `now` the wall clock as the API writes it;
    `node_uids` are the nodes that there are, `moves` those of the pool's agents that nodes last
    planned, `allocated` what the ledger knows, `rooms` what nodes have left."""
    pods = census(world, now_s=now_s)
    found = findings(world, pods, allocated, now=now)
    structure = {
        "observedGeneration": world.generation,
        "conditions": written(found, world.status.get("conditions") or (), world.generation, now),
        "pods": {
            "matched": len(pods.matched),
            "injected": len(pods.injected),
            "ready": len(pods.ready),
            "skipped": len(pods.skipped),
            "missed": len(pods.missed),
        },
        "skipped": [_skipped(pod) for pod in _newest(pods.skipped)],
        "missed": [{"pod": pod.name, "created": pod.created} for pod in _newest(pods.missed)],
        "nodes": plan_nodes(world, pods, node_uids, now_s=now_s, now=now),
    }

    def figures() -> dict[str, Any]:
        capacity = _bytes([beat.capacity for beat in pods.beats])
        used = _bytes([beat.used for beat in pods.beats])
        return {
            "roomNodes": plan_room(world, pods, rooms, now_s=now_s),
            "moves": [{"node": move.node, **move.field} for move in moves[:LISTED_MAX]],
            "quota": quota_field(allocated.quota, world.status.get("quota")),
            "capacity": capacity,
            "used": used,
            **totals_fields(world.totals),
            "agents": agents_field(world.agents),
            "display": _display(pods, found, capacity, used, world.totals),
        }

    return Planned(structure, figures)


def _newest(pods: Sequence[PodView]) -> Sequence[PodView]:
    return pods[::-1][:LISTED_MAX]


def _skipped(pod: PodView) -> dict[str, str]:
    assert pod.stamp is not None, "census sorts by stamp"
    return {"pod": pod.name, "reason": pod.stamp.word, "message": pod.stamp.message}


def _bytes(tiers: Sequence[TierBytes]) -> dict[str, int]:
    return {
        "hostBytes": sum([one.host_bytes for one in tiers]),
        "diskBytes": sum([one.disk_bytes for one in tiers]),
    }


def _display(
    pods: Census,
    found: Mapping[Type, Finding],
    capacity: Mapping[str, int],
    used: Mapping[str, int],
    totals: Counters,
) -> dict[str, str]:
    return {
        "ready": f"{len(pods.ready)}/{len(pods.injected)}",
        "injected": f"{len(pods.injected)}/{len(pods.matched)}",
        "host": _use(used["hostBytes"], capacity["hostBytes"]),
        "disk": _use(used["diskBytes"], capacity["diskBytes"]),
        "hit": _percent(totals.host_blocks + totals.disk_blocks, totals.miss_blocks),
        "saved": short_count(totals.tokens_saved),
        "reason": _first_reason(found).value,
    }


def _first_reason(found: Mapping[Type, Finding]) -> Reason:
    """Of the first condition that is not as it should be. What only time will tell is no trouble,
    unless there is nothing else to say; a drain is worth showing when all else is well."""
    for kind, finding in found.items():
        if finding.status is Status.FALSE and kind is not Type.DRAINING:
            return finding.reason
        if finding.status is Status.UNKNOWN and kind in MUST_BE_KNOWN:
            return finding.reason
    if found[Type.DRAINING].status is Status.TRUE:
        return found[Type.DRAINING].reason
    if found[Type.EFFECTIVE].reason in SHOWN_WHEN_WELL:
        return found[Type.EFFECTIVE].reason
    return found[Type.READY].reason


def _use(used_bytes: int, capacity_bytes: int) -> str:
    if not capacity_bytes:
        return NOTHING
    return f"{format_size(used_bytes)}/{format_size(capacity_bytes)}"


def _percent(hits: int, misses: int) -> str:
    asked = hits + misses
    return f"{hits * 100 // asked}%" if asked else NOTHING


def short_count(count: int) -> str:
    """`950`, `1.2k`, `34M`: for a table's column."""
    for scale, suffix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= scale:
            whole, tenth = divmod(count * 10 // scale, 10)
            return f"{whole}.{tenth}{suffix}" if tenth and whole < 100 else f"{whole}{suffix}"
    return str(count)
