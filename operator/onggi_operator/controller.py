"""Wiring of `python -m onggi_operator controller`: observe, plan, apply; heartbeats come in."""

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from onggi_operator.apply.events import tell_pod
from onggi_operator.apply.status import write_status
from onggi_operator.handlers import follow_pools, registry_for
from onggi_operator.health import health_app
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import Identities
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError, Conflict, NotFound, Unreachable
from onggi_operator.kube.reflector import Key, Reflector
from onggi_operator.metrics import PoolMetrics
from onggi_operator.observe.pods import PodView, project_pod
from onggi_operator.observe.world import PoolSnapshot, World
from onggi_operator.plan.events import plan_events
from onggi_operator.plan.status import plan_status
from onggi_operator.plan.writes import is_due
from onggi_operator.serving import run_until, serving
from onggi_operator.settings import ControllerSettings
from onggi_operator.tls.keeper import CertificateKeeper
from onggi_operator.tls.names import serving_hosts

PODS_PATH: Final = "/api/v1/pods"
LIVING_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""Finished pods can outnumber living ones many times over, and nothing is to be said of them."""

ROUND_S: Final = 2.0
"""Between rounds; a round over 10,000 pods takes some 50 ms."""

log = logging.getLogger(__name__)


def wall_clock() -> str:
    """Now, as the API writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reconciler:
    """Rounds of snapshot, plan, apply. A fault ends the round; the next starts afresh."""

    def __init__(
        self,
        api: ApiClient,
        world: World,
        pods: Mapping[Key, PodView],
        settings: ControllerSettings,
    ) -> None:
        self._api = api
        self._world = world
        self._pods = pods
        self._interval_s = settings.status_interval_s
        self._written_s: dict[Key, float] = {}
        self._told: set[str] = set()

    async def run(self) -> None:
        while True:
            try:
                await self.round()
            except (ApiError, Unreachable) as fault:
                log.warning("round ended early: %s", fault)
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        """Raises ApiError, Unreachable."""
        now_s, now = time.monotonic(), wall_clock()
        snapshot = self._world.snapshot(now_s=now_s)
        keys = {pool.key for pool in snapshot}
        self._written_s = {key: at_s for key, at_s in self._written_s.items() if key in keys}
        for pool in snapshot:
            wanted = plan_status(pool, now_s=now_s, now=now)
            if self._is_due(pool, wanted, now_s):
                await self._write(pool, wanted, now_s)
        await self._tell(now)

    def _is_due(self, pool: PoolSnapshot, wanted: Mapping[str, Any], now_s: float) -> bool:
        return is_due(
            wanted,
            pool.status,
            since_write_s=now_s - self._written_s.get(pool.key, float("-inf")),
            counters_interval_s=self._interval_s,
        )

    async def _write(self, pool: PoolSnapshot, wanted: Mapping[str, Any], now_s: float) -> None:
        self._written_s[pool.key] = now_s
        try:
            await write_status(self._api, pool.key, pool.uid, wanted)
        except (NotFound, Conflict) as gone:
            # Deleted or made anew meanwhile; the watch tells which.
            log.info("status not written: %s", gone, extra={"pool": "/".join(pool.key)})

    async def _tell(self, now: str) -> None:
        pods = list(self._pods.values())
        self._told &= {pod.uid for pod in pods}
        for event in plan_events(pods, self._told):
            try:
                await tell_pod(self._api, event, now=now)
            except NotFound as gone:
                log.info("event not written: %s", gone, extra={"namespace": event.namespace})
            self._told.add(event.uid)


async def run_controller(
    settings: ControllerSettings, access: ApiAccess, stop: asyncio.Event
) -> None:
    """Serve until `stop`."""
    registry = CollectorRegistry()
    async with ApiClient(access) as api:
        pods: Reflector[PodView] = Reflector(api, PODS_PATH, project_pod, params=LIVING_PODS)
        world = World(pods.items, started=wall_clock(), interval_s=settings.heartbeat_interval_s)
        pools_ready = asyncio.Event()
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
                (pods.synced, "pods"),
                (pools_ready, "pools"),
            ):
                if not event.is_set():
                    return name
            return None

        registry.register(
            PoolMetrics(lambda: world.snapshot(now_s=time.monotonic()), time.monotonic)
        )
        server = HeartbeatServer(
            world,
            Identities(api, time.monotonic),
            time.monotonic,
            registry,
        )
        reconciler = Reconciler(api, world, pods.items, settings)
        handlers = registry_for(access, world)
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
                    pods.run(),
                    follow_pools(handlers, stop, pools_ready),
                    _after(pods.synced, pools_ready, reconciler),
                ),
            )
    log.info("controller stopped")


async def _after(pods: asyncio.Event, pools: asyncio.Event, reconciler: Reconciler) -> None:
    """Reconcile once everything was seen: half a world would be written as half a status."""
    await pods.wait()
    await pools.wait()
    await reconciler.run()
