"""Nodes, pools and pods as Kubernetes and Onggi's webhook would have made them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

GIB: Final = 1024**3
MIB: Final = 1024**2
NODE_MEMORY: Final = "64Gi"
AGENT_MIN_BYTES: Final = 512 * MIB
AGENT_MAX_BYTES: Final = 4 * GIB
AGENT_DISK_BYTES: Final = 16 * GIB
POOLS_PER_NAMESPACE: Final = 5


@dataclass(frozen=True)
class Size:
    """Of a cluster: pods are spread evenly over its nodes and its pools. `pod_life_s` is how long
    one lives on average: of 10,000 one goes every two seconds, and another comes."""

    nodes: int
    pods: int
    pools: int
    pod_life_s: float = 20_000.0


@dataclass(frozen=True)
class Place:
    """Where a pod belongs."""

    namespace: str
    pool: str
    name: str
    node: str
    has_disk: bool


def node_name(number: int) -> str:
    return f"node-{number:04d}"


def namespaces(size: Size) -> list[str]:
    return [f"team-{n}" for n in range(-(-size.pools // POOLS_PER_NAMESPACE))]


def pools(size: Size) -> Iterator[tuple[str, dict[str, Any]]]:
    """Namespace and body. Every other pool has a disk."""
    for number in range(size.pools):
        memory = {"min": f"{AGENT_MIN_BYTES // MIB}Mi", "max": f"{AGENT_MAX_BYTES // GIB}Gi"}
        tiers: list[dict[str, Any]] = [{"type": "Memory", "memory": memory}]
        if _has_disk(number):
            disk = {"max": f"{AGENT_DISK_BYTES // GIB}Gi"}
            tiers.append({"type": "LocalDisk", "localDisk": disk})
        body = {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCachePool",
            "metadata": {"name": f"pool-{number}"},
            "spec": {"tiers": tiers},
        }
        yield f"team-{number // POOLS_PER_NAMESPACE}", body


def place(size: Size, number: int) -> Place:
    """Of the pod of that number: a node's pods are of as many pools."""
    pool = number % size.pools
    return Place(
        namespace=f"team-{pool // POOLS_PER_NAMESPACE}",
        pool=f"pool-{pool}",
        name=f"pool-{pool}-6d5f7c-{number:06d}",
        node=node_name(number * size.nodes // size.pods),
        has_disk=_has_disk(pool),
    )


def _has_disk(pool: int) -> bool:
    return pool % 2 == 1


def node(name: str) -> dict[str, Any]:
    """About 6 KiB, most of it the images that a kubelet lists."""
    images = [
        {"names": [f"registry.example/team/serving-{n}@sha256:{n:064x}"], "sizeBytes": GIB}
        for n in range(30)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"memory": NODE_MEMORY, "cpu": "32", "ephemeral-storage": "500Gi"},
            "capacity": {"memory": NODE_MEMORY, "cpu": "32", "ephemeral-storage": "500Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": images,
        },
    }


def pod(at: Place) -> dict[str, Any]:
    """About 5 KiB, with an agent."""
    variables = [{"name": f"SETTING_{n}", "value": "x" * 40} for n in range(25)]
    engine = {
        "name": "engine",
        "image": "serving:1",
        "env": variables,
        "resources": {"requests": {"memory": "2Gi"}},
    }
    disk = AGENT_DISK_BYTES if at.has_disk else 0
    environment = {
        "ONGGI_AGENT_POOL": at.pool,
        "ONGGI_AGENT_MEMORY": str(AGENT_MIN_BYTES),
        "ONGGI_AGENT_MEMORY_MAX": str(AGENT_MAX_BYTES),
        "ONGGI_AGENT_DISK": str(disk),
    }
    agent = {
        "name": "onggi-agent",
        "image": "onggi/agent:bench",
        "restartPolicy": "Always",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": {"memory": str(AGENT_MIN_BYTES + 192 * MIB)}},
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{at.pool}-6d5f7c",
        "uid": f"{at.namespace}-{at.pool}",
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": at.name,
            "namespace": at.namespace,
            "labels": {"app": at.pool},
            "annotations": {
                "onggi.dev/pool": at.pool,
                "onggi.dev/status": f"injected: bench-1: pool {at.pool}",
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": at.node,
            "serviceAccountName": "default",
            "initContainers": [agent],
            "containers": [engine],
        },
    }
