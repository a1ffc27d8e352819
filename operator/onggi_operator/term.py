"""A term of office: all that an operator knows and does from the moment it leads.

Nothing in it is older than the term. What the one before wrote is listed anew, and what it granted
is heard from the agents, as when an operator starts; so no cache can be behind what another did.
"""

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.kube.reflector import Key, Reflector, key_of
from onggi_operator.names import NODES_PATH as CACHE_NODES_PATH
from onggi_operator.names import POOLS_PATH
from onggi_operator.node_rounds import NodeRounds
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.nodes import (
    CacheNodeView,
    NodeView,
    project_cache_node,
    project_node,
)
from onggi_operator.observe.pods import Neighbour, PodView, project_pod
from onggi_operator.observe.world import POOLS_MAX, World
from onggi_operator.reconcile import Reconciler, api_time, wall_clock
from onggi_operator.resizer import Resizer
from onggi_operator.round_times import RoundTimes
from onggi_operator.serving import run_all
from onggi_operator.settings import ControllerSettings

PODS_PATH: Final = "/api/v1/pods"
NODES_PATH: Final = "/api/v1/nodes"
LIVING_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""Finished pods can outnumber living ones many times over, and nothing is to be said of them."""

LOOK_AGAIN_S: Final = 2.0

CLOCKS_DIFFER_MAX: Final = timedelta(minutes=1)
"""Between this machine's clock and the API server's."""

log = logging.getLogger(__name__)


class Term:
    """`api` writes only while this operator leads."""

    def __init__(self, api: ApiClient, settings: ControllerSettings, times: RoundTimes) -> None:
        self._api = api
        pods: Reflector[PodView | Neighbour] = Reflector(
            api, PODS_PATH, project_pod, params=LIVING_PODS
        )
        nodes: Reflector[NodeView] = Reflector(api, NODES_PATH, project_node)
        own: Reflector[CacheNodeView] = Reflector(api, CACHE_NODES_PATH, project_cache_node)
        self._seen: dict[str, Reflector[Any]] = {"pods": pods, "nodes": nodes, "cache nodes": own}
        self._pools_listed = asyncio.Event()
        self._late: dict[Key, Mapping[str, Any] | None] = {}
        """What pools became while they were being listed."""
        began_s = time.monotonic()
        self.fleet = Fleet(
            pods.items,
            nodes.items,
            own.items,
            started_s=began_s,
            newborn_after=api_time(datetime.now(UTC) + CLOCKS_DIFFER_MAX),
        )
        self.world = World(
            pods.items,
            started=wall_clock(),
            started_s=began_s,
            interval_s=settings.heartbeat_interval_s,
        )
        resizer = Resizer(api, allowed=settings.resize_requests)
        rounds = NodeRounds(
            api,
            self.world,
            self.fleet,
            time.monotonic,
            times,
            resizer,
            share=settings.node_memory_percent / 100,
            interval_s=settings.status_interval_s,
        )
        dice = random.Random()  # noqa: S311 - spreads calls
        self._reconciler = Reconciler(
            api, self.world, rounds, pods.items, resizer, settings, times, dice
        )

    async def run(self) -> None:
        """Until cancelled."""
        await run_all((*(one.run() for one in self._seen.values()), self._work()))

    def missing(self) -> str | None:
        """What was not seen yet; None once agents can be answered."""
        for name, one in self._seen.items():
            if not one.synced.is_set():
                return name
        return None if self._pools_listed.is_set() else "pools"

    def see_pool(self, body: Mapping[str, Any]) -> None:
        if self._pools_listed.is_set():
            self.world.see_pool(body)
        elif len(self._late) < POOLS_MAX:
            self._late[key_of(body)] = body

    def lose_pool(self, key: Key) -> None:
        if self._pools_listed.is_set():
            self.world.lose_pool(key)
        elif len(self._late) < POOLS_MAX:
            self._late[key] = None

    async def _work(self) -> None:
        """Reconcile once everything was seen: half a world would be written as half a status."""
        await self._list_pools()
        for one in self._seen.values():
            await one.synced.wait()
        await self._reconciler.run()

    async def _list_pools(self) -> None:
        """The watch has shown pools as they were before the term; a pool's ledger is read once, and
        must be what the last leader wrote last."""
        while not self._pools_listed.is_set():
            try:
                pages = [page async for page in self._api.pages(POOLS_PATH, {})]
            except (ApiError, Unreachable) as fault:
                log.warning("pools could not be listed: %s", fault)
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            for page in pages:
                for body in page.get("items") or ():
                    self.world.see_pool(body)
            self._pools_listed.set()
        for key, late in self._late.items():
            if late is None:
                self.world.lose_pool(key)
            else:
                self.world.see_pool(late)
        self._late.clear()
