"""Writes KVCacheNodes."""

from collections.abc import Mapping
from typing import Any

from onggi_operator.kube.client import ApiClient, Conflict, NotFound
from onggi_operator.names import GROUP, NODE_KIND, NODES_PATH, VERSION
from onggi_operator.observe.nodes import CacheNodeView, NodeView


async def write_node(
    api: ApiClient, node: NodeView, own: CacheNodeView | None, status: Mapping[str, Any]
) -> None:
    """Makes the object where there is none. It belongs to its Node, so that it goes when that goes,
    with or without an operator; a Node that came back under its old name takes it over from the one
    that it spoke of. Its version, as it was seen, is a precondition: what another operator wrote
    since is left as it is. Raises Conflict, ApiError, Unreachable."""
    path = f"{NODES_PATH}/{node.name}"
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    try:
        meta = {"resourceVersion": own.version if own else ""}
        if own is not None and own.status.get("nodeUID", node.uid) != node.uid:
            taken = await api.patch(path, {"metadata": {**meta, "ownerReferences": [owner]}})
            meta = {"resourceVersion": taken["metadata"]["resourceVersion"]}
        await api.patch(f"{path}/status", {"metadata": meta, "status": status})
    except NotFound:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": NODE_KIND,
            "metadata": {"name": node.name, "ownerReferences": [owner]},
            "spec": {},
        }
        try:
            await api.post(NODES_PATH, body)
        except Conflict:
            return  # somebody else made it just now; the next round writes it
        await api.patch(f"{path}/status", {"status": status})
