"""Wiring of `python -m onggi_operator controller`: what it serves, and when it leads."""

import asyncio
import gc
import logging
import random
import time
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry

from onggi_operator.handlers import follow_pools, registry_for
from onggi_operator.health import health_app
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import Identities
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient
from onggi_operator.lead.elector import Elector, boot_clock, new_identity
from onggi_operator.lead.lease import Standing
from onggi_operator.metrics import PoolMetrics, tell_leading
from onggi_operator.office import Office
from onggi_operator.round_times import RoundTimes
from onggi_operator.serving import run_until, serving
from onggi_operator.settings import ControllerSettings
from onggi_operator.tls.keeper import CertificateKeeper
from onggi_operator.tls.names import serving_hosts

COLLECT_AFTER: Final = (200_000, 5, 50)
"""Objects made since the last collection of the young, and how often those are collected before
older ones are. With 10,000 agents there are millions of objects that live for hours: Python's own
numbers had all of them looked through for a fifth of the time, seconds at once. A round makes
50,000 to 100,000 that live until it ends, and then go without being collected: with a bound in
between, each round stopped for a tenth of a second to look through them, and every twentieth for a
quarter."""

log = logging.getLogger(__name__)


async def run_controller(
    settings: ControllerSettings, access: ApiAccess, stop: asyncio.Event
) -> None:
    """Serve until `stop`, and lead whenever no other does."""
    gc.set_threshold(*COLLECT_AFTER)
    registry = CollectorRegistry()
    async with ApiClient(access) as api:
        keeper = CertificateKeeper(
            api,
            namespace=settings.release_namespace,
            secret=settings.tls_secret,
            hosts=serving_hosts(settings),
            now=lambda: datetime.now(UTC),
        )
        elector = Elector(
            api,
            namespace=settings.release_namespace,
            name=settings.lease,
            identity=new_identity(),
            clock=boot_clock,
            dice=random.Random(),  # noqa: S311 - spreads calls
        )
        office = Office(api, elector, settings, RoundTimes(registry))
        identities = Identities(api, time.monotonic, office.is_there)
        server = HeartbeatServer(office.desk, identities, time.monotonic, registry)
        registry.register(PoolMetrics(lambda: office.pools(time.monotonic()), time.monotonic))
        tell_leading(lambda: elector.standing() is Standing.LEADING, registry)

        def missing() -> str | None:
            return office.missing() if keeper.ready.is_set() else "a certificate"

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
                    follow_pools(registry_for(access, office, asyncio.get_running_loop())),
                    elector.run(office.term),
                ),
            )
    log.info("controller stopped")
