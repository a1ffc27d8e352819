"""What the ledger knows of a pool's memory: who lacks what it was promised, and what keeps the
others from more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_operator.kube.reflector import Key
from onggi_operator.observe.fleet import NodeSnapshot
from onggi_operator.plan.grants import NodePlan
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.plan.rebalance import UNIT_BYTES
from onggi_operator.plan.resizes import BLOCKED_STATES

BELOW_MIN_S: Final = 120.0
"""An arena of 100 GiB is touched within a minute; what is not there after two will not come."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Of one pool, over all nodes. `below_min` are the uids of pods."""

    below_min: frozenset[str] = frozenset()
    node_full: bool = False
    quota: QuotaShare | None = None


NOTHING_KNOWN: Final = Allocation()


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """Of one node: agents without what they were promised, and pools whose agents have all that
    the node offers, or lets their pods request, although they could be given more."""

    below_min: Mapping[Key, frozenset[str]]
    full: frozenset[Key]


def look_at(node: NodeSnapshot, plan: NodePlan, *, now_s: float) -> NodeFindings:
    """After the node was planned."""
    below: dict[Key, set[str]] = {}
    short: set[Key] = set()
    blocked: set[Key] = set()
    room_bytes, takers = plan.offered_bytes, 0
    told, sizes, resizes = plan.told, plan.sharing.sizes, plan.resizes
    for one, claim in zip(node.agents, plan.claims, strict=True):
        uid = one.uid
        room_bytes -= max(claim.charged_bytes, told.get(uid, 0))
        if not claim.listens:
            continue
        takers += 1
        if one.ready_bytes < claim.floor_bytes and now_s - one.began_s > BELOW_MIN_S:
            below.setdefault((one.namespace, one.pool), set()).add(uid)
        if sizes[uid] < claim.ceiling_bytes:
            short.add((one.namespace, one.pool))
        if resizes and resizes.get(uid) in BLOCKED_STATES:
            blocked.add((one.namespace, one.pool))
    # Even shares are whole units: what no unit for each is left of is nobody's.
    full = frozenset(short) if room_bytes < max(1, takers) * UNIT_BYTES else frozenset[Key]()
    return NodeFindings({key: frozenset(uids) for key, uids in below.items()}, full | blocked)


def gathered(nodes: Iterable[NodeFindings]) -> dict[Key, Allocation]:
    """By pool, from all nodes; of pools that there is anything to tell of."""
    below: dict[Key, set[str]] = {}
    full: set[Key] = set()
    for node in nodes:
        full |= node.full
        for key, uids in node.below_min.items():
            below.setdefault(key, set()).update(uids)
    return {
        key: Allocation(below_min=frozenset(below.get(key, ())), node_full=key in full)
        for key in full | below.keys()
    }


def quota_field(
    quota: QuotaShare | None, present: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The status's `quota`. A merge patch keeps what it does not name, so what is no longer bounded
    is named once more, with None."""
    if quota is None:
        return None
    used = {}
    hard = {}
    for name, bound, taken in (
        ("memoryBytes", quota.hard.memory_bytes, quota.used.memory_bytes),
        ("diskBytes", quota.hard.disk_bytes, quota.used.disk_bytes),
    ):
        if bound is not None:
            hard[name], used[name] = bound, taken
    before = present or {}
    return {
        part: {**dict.fromkeys(before.get(part) or {}), **values}
        for part, values in (("hard", hard), ("used", used))
    }
