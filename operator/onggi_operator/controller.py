"""Wiring of `python -m onggi_operator controller`: what it watches, serves and writes."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry

from onggi_operator.handlers import Handlers, follow_pools, registry_for
from onggi_operator.health import health_app
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import Identities
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.kube.reflector import Reflector
from onggi_operator.metrics import PoolMetrics
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
from onggi_operator.observe.world import World
from onggi_operator.reconcile import Reconciler, api_time, wall_clock
from onggi_operator.round_times import RoundTimes
from onggi_operator.serving import run_until, serving
from onggi_operator.settings import ControllerSettings
from onggi_operator.tls.keeper import CertificateKeeper
from onggi_operator.tls.names import serving_hosts

PODS_PATH: Final = "/api/v1/pods"
NODES_PATH: Final = "/api/v1/nodes"
LIVING_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""Finished pods can outnumber living ones many times over, and nothing is to be said of them."""

LOOK_AGAIN_S: Final = 2.0

COLLECT_AFTER: Final = (50_000, 20, 50)
"""Objects made since the last collection of the young, and how often those are collected before
older ones are. With 10,000 agents there are millions of objects that live for hours: Python's own
numbers had all of them looked through for a fifth of the time, seconds at once. What is made in a
round or for a report goes without being collected."""

CLOCKS_DIFFER_MAX: Final = timedelta(minutes=1)
"""Between this machine's clock and the API server's."""

log = logging.getLogger(__name__)


class _Seen:
    """What is watched beside the pools."""

    def __init__(self, api: ApiClient) -> None:
        self.pods: Reflector[PodView | Neighbour] = Reflector(
            api, PODS_PATH, project_pod, params=LIVING_PODS
        )
        self.nodes: Reflector[NodeView] = Reflector(api, NODES_PATH, project_node)
        self.own: Reflector[CacheNodeView] = Reflector(api, CACHE_NODES_PATH, project_cache_node)
        self.reflectors: dict[str, Reflector[Any]] = {
            "pods": self.pods,
            "nodes": self.nodes,
            "cache nodes": self.own,
        }


async def run_controller(
    settings: ControllerSettings, access: ApiAccess, stop: asyncio.Event
) -> None:
    """Serve until `stop`."""
    gc.set_threshold(*COLLECT_AFTER)
    registry = CollectorRegistry()
    async with ApiClient(access) as api:
        seen = _Seen(api)
        pods = seen.pods
        fleet = Fleet(
            pods.items,
            seen.nodes.items,
            seen.own.items,
            started_s=time.monotonic(),
            newborn_after=api_time(datetime.now(UTC) + CLOCKS_DIFFER_MAX),
        )
        world = World(
            pods.items,
            started=wall_clock(),
            started_s=time.monotonic(),
            interval_s=settings.heartbeat_interval_s,
        )
        pools_seen = asyncio.Event()
        keeper = CertificateKeeper(
            api,
            namespace=settings.release_namespace,
            secret=settings.tls_secret,
            hosts=serving_hosts(settings),
            now=lambda: datetime.now(UTC),
        )

        def missing() -> str | None:
            for event, name in (
                (keeper.ready, "a certificate"),
                *((one.synced, name) for name, one in seen.reflectors.items()),
                (pools_seen, "pools"),
            ):
                if not event.is_set():
                    return name
            return None

        registry.register(
            PoolMetrics(lambda: world.snapshot(now_s=time.monotonic()), time.monotonic)
        )
        identities = Identities(api, time.monotonic, world.is_there)
        server = HeartbeatServer(world, fleet, identities, time.monotonic, registry)
        times = RoundTimes(registry)
        rounds = _node_rounds(api, world, fleet, times, settings)
        reconciler = Reconciler(
            api,
            world,
            rounds,
            pods.items,
            settings,
            times,
            random.Random(),  # noqa: S311 - spreads calls
        )
        host = settings.listen_host
        async with (
            serving(health_app(missing, registry), host, settings.health_port),
            serving(server.app(), host, settings.https_port, keeper.context),
        ):
            log.info("controller started", extra={"port": settings.https_port})
            await run_until(
                stop,
                (
                    keeper.run(),
                    *(one.run() for one in seen.reflectors.values()),
                    _follow_pools(api, world, registry_for(access, world), stop, pools_seen),
                    _after(
                        (*(one.synced for one in seen.reflectors.values()), pools_seen), reconciler
                    ),
                ),
            )
    log.info("controller stopped")


def _node_rounds(
    api: ApiClient, world: World, fleet: Fleet, times: RoundTimes, settings: ControllerSettings
) -> NodeRounds:
    return NodeRounds(
        api,
        world,
        fleet,
        time.monotonic,
        times,
        share=settings.node_memory_percent / 100,
        interval_s=settings.status_interval_s,
    )


async def _follow_pools(
    api: ApiClient,
    world: World,
    handlers: Handlers,
    stop: asyncio.Event,
    seen: asyncio.Event,
) -> None:
    """One list first, then kopf: it does not say when its own first list is complete, and a report
    from an agent of a pool that is not known yet would be lost."""
    while not seen.is_set():
        try:
            async for page in api.pages(POOLS_PATH, {}):
                for body in page.get("items") or ():
                    world.see_pool(body)
            seen.set()
        except (ApiError, Unreachable) as fault:
            log.warning("pools could not be listed: %s", fault)
            await asyncio.sleep(LOOK_AGAIN_S)
    await follow_pools(handlers, stop)


async def _after(seen: Sequence[asyncio.Event], reconciler: Reconciler) -> None:
    """Reconcile once everything was seen: half a world would be written as half a status."""
    for event in seen:
        await event.wait()
    await reconciler.run()
