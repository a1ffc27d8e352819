"""Which nodes hold disk data that pods of a pool left behind, so that new ones may be drawn there.

Only a disk of medium HostPath stays. Agents of one node have a folder each, and a new one takes the
first that is free: a node is warm while more folders were filled there than agents live there now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from onggi_core.heartbeat import Heartbeat
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.census import Census
from onggi_operator.pool import Medium, Pool

NODES_MAX: Final = 50
"""As in the schema; those that were left longest ago go first."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """`folders` is the most agents that had data there at once, `agents` how many live there now;
    `left_at` is when fewer lived than had, None while all live."""

    node: str
    uid: str
    folders: int
    agents: int
    left_at: str | None

    def field(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "node": self.node,
            "nodeUID": self.uid,
            "folders": self.folders,
            "agents": self.agents,
        }
        return told if self.left_at is None else {**told, "leftAt": self.left_at}


def plan_nodes(
    world: PoolSnapshot, pods: Census, node_uids: Mapping[str, str], *, now_s: float, now: str
) -> list[dict[str, Any]]:
    """The status's `nodes`: of those there are, since one that comes back under its old name has
    another uid and another disk. An operator that begins believes the last one until every agent
    had time to report: a restart here leaves no data anywhere."""
    written: Sequence[Mapping[str, Any]] = world.status.get("nodes") or ()
    pool = world.pool
    if not isinstance(pool, Pool) or not pool.disk or pool.disk.medium is not Medium.HOST_PATH:
        return []
    if now_s - world.started_s <= world.fresh_s:
        return [dict(one) for one in written]
    before = {one["node"]: one for one in written if node_uids.get(one["node"]) == one["nodeUID"]}
    found = _found(pods.beats, before, node_uids, now)
    kept_s = pool.lifecycle.disk_retention_s
    kept = [one for one in found if not (kept_s and _left_s(one, now) > kept_s) and one.folders]
    kept.sort(key=lambda one: (_left_s(one, now), one.node))
    return [one.field() for one in sorted(kept[:NODES_MAX], key=lambda one: one.node)]


def _found(
    beats: Iterable[Heartbeat],
    written: Mapping[str, Mapping[str, Any]],
    node_uids: Mapping[str, str],
    now: str,
) -> list[NodeData]:
    with_disk = [beat for beat in beats if beat.capacity.disk_bytes and beat.node in node_uids]
    agents = Counter(beat.node for beat in with_disk)
    filled = Counter(beat.node for beat in with_disk if beat.used.disk_bytes)
    found = []
    for node in sorted(agents.keys() | written.keys()):
        before = written.get(node, {})
        folders = max(before.get("folders", 0), filled[node])
        left = agents[node] < folders
        left_at = (before.get("leftAt") or now) if left else None
        found.append(NodeData(node, node_uids[node], folders, agents[node], left_at))
    return found


def _left_s(one: NodeData, now: str) -> float:
    if one.left_at is None:
        return 0.0
    return (datetime.fromisoformat(now) - datetime.fromisoformat(one.left_at)).total_seconds()
