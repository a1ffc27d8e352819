"""Writes a pool's status."""

from collections.abc import Mapping
from typing import Any

from onggi_operator.kube.client import ApiClient
from onggi_operator.names import GROUP, PLURAL, VERSION
from onggi_operator.observe.world import PoolSnapshot


async def write_status(api: ApiClient, pool: PoolSnapshot, status: Mapping[str, Any]) -> None:
    """Raises NotFound when the pool is gone, Conflict when another has its name now or it changed
    since it was seen, ApiError, Unreachable. Uid and version are preconditions: a write that was
    on its way while another operator began to lead changes nothing that the other wrote."""
    namespace, name = pool.key
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}/status"
    meta = {"uid": pool.uid, "resourceVersion": pool.version}
    await api.patch(path, {"metadata": meta, "status": status})
