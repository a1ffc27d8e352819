"""Nodes as the controller sees them: the Node, and Onggi's own object beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from onggi_core.quantity import capped_quantity

LEAVING_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
    }
)
"""That say: pods are about to leave this node, or have to. A cordon says it without a taint."""


SETTLES: Final = timedelta(minutes=1)
"""A kubelet that starts ends what the API server does not know within seconds, and gives it its
grace period of 30 s."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a node has to give, and whether pods are to leave it. `ready_since` is as the API writes
    it, empty where the node does not say."""

    name: str
    uid: str
    memory_bytes: int
    disk_bytes: int
    ready: bool
    leaving: bool
    ready_since: str = ""

    def is_settled(self, now: str) -> bool:
        """Whether all that runs there is known: what was deleted while nobody reached the node runs
        on until its kubelet is back, and for a while longer."""
        if not self.ready or not self.ready_since:
            return self.ready
        past = datetime.fromisoformat(now) - datetime.fromisoformat(self.ready_since)
        return past >= SETTLES


@dataclass(frozen=True, slots=True)
class CacheNodeView:
    """A KVCacheNode. `offer_bytes` is what its spec gives to all agents on the node together; None
    where it says nothing."""

    name: str
    generation: int
    offer_bytes: int | None
    status: Mapping[str, Any]
    version: str = ""


def project_node(node: Mapping[str, Any]) -> NodeView:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    taints = {taint["key"] for taint in spec.get("taints") or ()}
    return NodeView(
        name=meta["name"],
        uid=meta["uid"],
        memory_bytes=capped_quantity(str(allocatable.get("memory", "0"))),
        disk_bytes=capped_quantity(str(allocatable.get("ephemeral-storage", "0"))),
        ready=ready.get("status") == "True",
        leaving=bool(spec.get("unschedulable")) or bool(taints & LEAVING_TAINTS),
        ready_since=str(ready.get("lastTransitionTime") or ""),
    )


def project_cache_node(body: Mapping[str, Any]) -> CacheNodeView:
    """The schema lets in no offer that is not a quantity."""
    meta = body["metadata"]
    said = ((body.get("spec") or {}).get("offer") or {}).get("memory")
    return CacheNodeView(
        name=meta["name"],
        generation=meta["generation"],
        offer_bytes=None if said is None else capped_quantity(str(said)),
        status=body.get("status") or {},
        version=meta["resourceVersion"],
    )
