"""Where the webhook takes pools and limits from: caches, and one bounded look for a pool that is
too new to be in them (`kubectl apply` of a pool and its pods in one go)."""

import asyncio
import difflib
from collections.abc import Mapping
from typing import Any, Final

from onggi_operator.inject.limits import Limits, read_limits
from onggi_operator.inject.namespace import Namespace
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.inject.quota import Quota, read_quota
from onggi_operator.kube.client import ApiClient, ApiError, NotFound, Unreachable
from onggi_operator.kube.reflector import Reflector
from onggi_operator.names import GROUP, PLURAL, POOL, POOLS_PATH, VERSION
from onggi_operator.pool import Pool, PoolUnreadable, read_pool
from onggi_operator.webhook.promised import Promise, Promises, project_promise

LOOK_TIMEOUT_S: Final = 1.0
"""Well under the webhook's own limit, so that the answer to a slow API server is still ours."""

LOOKS_MAX: Final = 16
"""At once. Pods that name a pool that does not exist, a thousand at a time, must not turn into a
thousand requests; those beyond are skipped."""

LIMIT_RANGES_PATH: Final = "/api/v1/limitranges"
QUOTAS_PATH: Final = "/api/v1/resourcequotas"

PODS_PATH: Final = "/api/v1/pods"
WITH_AGENT: Final = {
    "labelSelector": POOL,
    "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
}
"""Every injected pod has the label."""

NAMESPACES_PATH: Final = "/api/v1/namespaces"

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
STRICT: Final = {"labelSelector": f"{ENFORCE} in (baseline,restricted)"}
"""Namespaces that refuse volumes of the node's. A level that the API server enforces by default,
for namespaces without the label, cannot be read from anywhere."""

NAMED_MAX: Final = 5
"""Pools listed in a message, where none is near what was asked for."""

PoolView = Pool | PoolUnreadable


def project_pool(body: Mapping[str, Any]) -> PoolView:
    """A pool, or what is wrong with it: told to whoever asks for it."""
    try:
        return read_pool(body)
    except PoolUnreadable as problem:
        return problem


class Sources:
    """Read-only view of the cluster for admission."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._looks = asyncio.Semaphore(LOOKS_MAX)
        self.pools: Reflector[PoolView] = Reflector(api, POOLS_PATH, project_pool)
        self.limits: Reflector[tuple[Limits, ...]] = Reflector(api, LIMIT_RANGES_PATH, read_limits)
        self.strict: Reflector[str] = Reflector(
            api,
            NAMESPACES_PATH,
            lambda body: body["metadata"]["labels"].get(ENFORCE),
            params=STRICT,
        )
        self.quotas: Reflector[Quota] = Reflector(api, QUOTAS_PATH, read_quota)
        self.agents: Reflector[Promise] = Reflector(
            api, PODS_PATH, project_promise, params=WITH_AGENT
        )
        self.promises = Promises(self.agents.items)

    @property
    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """All that is followed, by what it is called in a sentence."""
        return {
            "pools": self.pools,
            "limit ranges": self.limits,
            "resource quotas": self.quotas,
            "namespaces": self.strict,
            "pods with an agent": self.agents,
        }

    async def pool(self, namespace: str, name: str) -> Pool | Skipped:
        """The pool, or why there is none to be had."""
        cached = self.pools.items.get((namespace, name))
        found = await self._look(namespace, name) if cached is None else cached
        if isinstance(found, PoolUnreadable):
            return Skipped(SkipReason.POOL_UNREADABLE, str(found))
        return found

    def namespace(self, name: str) -> Namespace:
        """What is known of a namespace."""
        limits = self.limits.items.items()
        quotas = self.quotas.items.items()
        return Namespace(
            name,
            tuple(limit for (where, _), several in limits if where == name for limit in several),
            tuple(quota for (where, _), quota in quotas if where == name),
            self.strict.items.get(("", name)),
        )

    async def _look(self, namespace: str, name: str) -> PoolView | Skipped:
        unknown = Skipped(
            SkipReason.UNKNOWN_POOL, f"namespace {namespace} has no KVCachePool {name}"
        )
        if self._looks.locked():
            busy = "too many pods ask at once for pools that are not known yet"
            return Skipped(SkipReason.API_UNREACHABLE, f"pool {name} was not looked up: {busy}")
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}"
        try:
            async with self._looks:
                return project_pool(await self._api.get(path, timeout_s=LOOK_TIMEOUT_S))
        except NotFound:
            return self._with_nearest(unknown, namespace, name)
        except (ApiError, Unreachable) as fault:
            return Skipped(SkipReason.API_UNREACHABLE, f"pool {name} could not be read: {fault}")

    def _with_nearest(self, unknown: Skipped, namespace: str, asked: str) -> Skipped:
        known = sorted(name for where, name in self.pools.items if where == namespace)
        if not known:
            return unknown
        near = difflib.get_close_matches(asked, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known[:NAMED_MAX])}"
        return Skipped(unknown.reason, f"{unknown.message}; {hint}")
