"""Writes a pool's status."""

from collections.abc import Mapping
from typing import Any

from onggi_operator.kube.client import ApiClient
from onggi_operator.kube.reflector import Key
from onggi_operator.names import GROUP, PLURAL, VERSION


async def write_status(api: ApiClient, key: Key, uid: str, status: Mapping[str, Any]) -> None:
    """Raises NotFound when the pool is gone, Conflict when another has its name now (the uid is a
    precondition), ApiError, Unreachable."""
    namespace, name = key
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}/status"
    await api.patch(path, {"metadata": {"uid": uid}, "status": status})
