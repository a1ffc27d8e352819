"""Writes KVCacheNodes."""

from collections.abc import Mapping
from typing import Any

from onggi_operator.kube.client import ApiClient, Conflict, NotFound
from onggi_operator.names import GROUP, NODE_KIND, NODES_PATH, VERSION
from onggi_operator.observe.nodes import NodeView


async def write_node(
    api: ApiClient, node: NodeView, status: Mapping[str, Any], *, spoke_of: str | None
) -> None:
    """Makes the object where there is none. It belongs to its Node, so that it goes when that goes,
    with or without an operator; a Node that came back under its old name takes it over from the one
    it `spoke_of`. Raises ApiError, Unreachable."""
    path = f"{NODES_PATH}/{node.name}"
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    try:
        if spoke_of not in (None, node.uid):
            await api.patch(path, {"metadata": {"ownerReferences": [owner]}})
        await api.patch(f"{path}/status", {"status": status})
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
