"""Nodes as the controller sees them: the Node, and Onggi's own object beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_core.quantity import exact_quantity

LEAVING_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
    }
)
"""That say: pods are about to leave this node, or have to. A cordon says it without a taint."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a node has to give, and whether pods are to leave it."""

    name: str
    uid: str
    memory_bytes: int
    disk_bytes: int
    ready: bool
    leaving: bool


@dataclass(frozen=True, slots=True)
class CacheNodeView:
    """A KVCacheNode. `offer_bytes` is what its spec gives to all agents on the node together; None
    where it says nothing."""

    name: str
    generation: int
    offer_bytes: int | None
    status: Mapping[str, Any]


def project_node(node: Mapping[str, Any]) -> NodeView:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    taints = {taint["key"] for taint in spec.get("taints") or ()}
    return NodeView(
        name=meta["name"],
        uid=meta["uid"],
        memory_bytes=int(exact_quantity(str(allocatable.get("memory", "0")))),
        disk_bytes=int(exact_quantity(str(allocatable.get("ephemeral-storage", "0")))),
        ready=conditions.get("Ready") == "True",
        leaving=bool(spec.get("unschedulable")) or bool(taints & LEAVING_TAINTS),
    )


def project_cache_node(body: Mapping[str, Any]) -> CacheNodeView:
    """The schema lets in no offer that is not a quantity."""
    meta = body["metadata"]
    said = ((body.get("spec") or {}).get("offer") or {}).get("memory")
    return CacheNodeView(
        name=meta["name"],
        generation=meta["generation"],
        offer_bytes=None if said is None else int(exact_quantity(str(said))),
        status=body.get("status") or {},
    )
