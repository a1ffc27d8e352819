"""Tells by Events, and remembers between rounds what was told."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onggi_operator.apply.events import tell
from onggi_operator.kube.client import ApiClient, ApiError
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.events import TELL_AGAIN_S, Tell, plan_events, plan_pool_events

log = logging.getLogger(__name__)


class Teller:
    """An Event that is refused is not tried again: its namespace is going, or has no room for
    Events, and the pod's annotation and the pool's status say the same. Raises Unreachable."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._told_pods: set[str] = set()
        self._told_pools: dict[tuple[str, str], float] = {}
        """By the pool's uid and the reason, as long as it keeps the next one from being told."""

    async def tell_pods(self, pods: Iterable[PodView], *, now: str) -> None:
        living = list(pods)
        self._told_pods &= {pod.uid for pod in living}
        for event in plan_events(living, self._told_pods):
            await self._tell(event, now)
            self._told_pods.add(event.about.uid)

    async def tell_pool(
        self, pool: PoolSnapshot, conditions: Sequence[Mapping[str, Any]], *, now_s: float, now: str
    ) -> None:
        """Call it once the conditions are written, and not before: what the pool's status says is
        what was told."""
        self._told_pools = {
            what: at_s for what, at_s in self._told_pools.items() if now_s - at_s < TELL_AGAIN_S
        }
        for event in plan_pool_events(pool, conditions, self._told_pools, now_s=now_s):
            await self._tell(event, now)
            self._told_pools[pool.uid, event.reason] = now_s

    async def _tell(self, event: Tell, now: str) -> None:
        try:
            await tell(self._api, event, now=now)
        except ApiError as refused:
            log.info("event not written: %s", refused, extra={"namespace": event.about.namespace})
