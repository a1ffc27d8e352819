"""A soft preference for nodes on which the pool's dead pods left their data.

Soft: it never keeps a pod from starting elsewhere, and it is added beside whatever the pod prefers
already. By the Node's own name (matchFields): its hostname label may be another.
"""

from collections.abc import Mapping
from typing import Any, Final

from onggi_operator.inject.outcome import Patch
from onggi_operator.pool import Pool, Scheduling

WEIGHT: Final = 50
"""Of 100: what a user prefers more than anything else goes before it."""

PREFERRED_MAX: Final = 10
"""Nodes named, a term for each since the API takes one name a term; the scheduler looks at all."""

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def preference(spec: Mapping[str, Any], pool: Pool) -> Patch:
    """Empty for a pod whose node is decided, and where nothing is known to prefer."""
    if pool.placement.scheduling is Scheduling.OFF or not pool.warm_nodes or spec.get("nodeName"):
        return ()
    terms = [_term(node) for node in pool.warm_nodes[:PREFERRED_MAX]]
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


def _term(node: str) -> dict[str, Any]:
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": WEIGHT, "preference": {"matchFields": [name]}}
