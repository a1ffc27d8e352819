"""A soft preference for nodes on which the pool's dead pods left data, and for nodes that have
memory left for one more of its agents.

Soft: it never keeps a pod from starting elsewhere, and it is added beside whatever the pod prefers
already. By the Node's own name (matchFields): its hostname label may be another.
"""

from collections.abc import Mapping
from typing import Any, Final

from onggi_operator.inject.outcome import Patch
from onggi_operator.placement import Scheduling
from onggi_operator.pool import Pool

DATA_WEIGHT: Final = 50
"""Of 100: what a user prefers more than anything else goes before it."""

ROOM_WEIGHT: Final = 25
"""Data are there at once, and room is worth what it will hold one day. A node with both has the sum
of both."""

PREFERRED_MAX: Final = 10
"""Nodes named for either reason, a term for each since the API takes one name a term; the scheduler
looks at all, and every pod carries them: some 3 KiB."""

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def preference(spec: Mapping[str, Any], pool: Pool, *, disk_bytes: int) -> Patch:
    """Empty for a pod whose node is decided, and where nothing is known to prefer. A pod without a
    disk has no use for data."""
    if pool.placement.scheduling is Scheduling.OFF or spec.get("nodeName"):
        return ()
    warm = pool.warm_nodes[:PREFERRED_MAX] if disk_bytes else ()
    terms = [
        *(_term(node, DATA_WEIGHT) for node in warm),
        *(_term(node, ROOM_WEIGHT) for node in pool.room_nodes[:PREFERRED_MAX]),
    ]
    if not terms:
        return ()
    affinity = spec.get("affinity")
    if not affinity:
        return _add("/spec/affinity", {"nodeAffinity": {_PREFERRED: terms}})
    node_affinity = affinity.get("nodeAffinity")
    if not node_affinity:
        return _add("/spec/affinity/nodeAffinity", {_PREFERRED: terms})
    path = f"/spec/affinity/nodeAffinity/{_PREFERRED}"
    if not node_affinity.get(_PREFERRED):
        return _add(path, terms)
    return tuple(operation for term in terms for operation in _add(f"{path}/-", term))


def _add(path: str, value: object) -> Patch:
    return ({"op": "add", "path": path, "value": value},)


def _term(node: str, weight: int) -> dict[str, Any]:
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": weight, "preference": {"matchFields": [name]}}
