"""Wiring of `python -m onggi_operator webhook`."""

import asyncio
import logging
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from onggi_operator.health import health_app
from onggi_operator.inject.containers import Installation
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.serving import run_until, serving
from onggi_operator.settings import WebhookSettings
from onggi_operator.tls.keeper import CHECK_PERIOD_S, CHECK_SOON_S, CertificateKeeper
from onggi_operator.tls.names import serving_hosts
from onggi_operator.webhook.configuration import trust
from onggi_operator.webhook.kubernetes import read_version
from onggi_operator.webhook.revisions import Revisions
from onggi_operator.webhook.server import AdmissionServer
from onggi_operator.webhook.sources import Sources

log = logging.getLogger(__name__)


async def run_webhook(settings: WebhookSettings, access: ApiAccess, stop: asyncio.Event) -> None:
    """Serve until `stop`. Readiness waits for all that an injection needs, so that a Deployment
    that counts as rolled out is one that injects."""
    registry = CollectorRegistry()
    async with ApiClient(access) as api:
        keeper = CertificateKeeper(
            api,
            namespace=settings.release_namespace,
            secret=settings.tls_secret,
            hosts=serving_hosts(settings),
            now=lambda: datetime.now(UTC),
        )
        sources = Sources(api)
        kubernetes = await read_version(api)
        trusted = asyncio.Event()
        revisions = Revisions(api, settings)

        def missing() -> str | None:
            for event, name in (
                (keeper.ready, "a certificate"),
                (trusted, "the webhook configuration"),
                (revisions.known, "revisions"),
                *((one.synced, name) for name, one in sources.reflectors.items()),
            ):
                if not event.is_set():
                    return name
            return None

        server = AdmissionServer(
            sources, lambda: _installation(settings, keeper, revisions, kubernetes), registry
        )
        host = settings.listen_host
        async with (
            serving(health_app(missing, registry), host, settings.health_port),
            serving(server.app(), host, settings.https_port, keeper.context),
        ):
            log.info("webhook started", extra={"port": settings.https_port})
            await run_until(
                stop,
                (
                    keeper.run(),
                    *(one.run() for one in sources.reflectors.values()),
                    _keep_trusted(api, settings.webhook_configuration, keeper, trusted),
                    revisions.run(),
                ),
            )
    log.info("webhook stopped")


def _installation(
    settings: WebhookSettings,
    keeper: CertificateKeeper,
    revisions: Revisions,
    kubernetes: tuple[int, int] | None,
) -> Installation:
    service = f"{settings.operator_service}.{settings.release_namespace}.svc"
    return Installation(
        agent_image=settings.agent_image,
        pull_policy=settings.agent_image_pull_policy,
        log_level=settings.agent_log_level,
        operator_url=f"https://{service}:{settings.heartbeat_port}",
        ca_pem=keeper.ca_pem or "",
        revisions=revisions.images,
        warm_gates=settings.warm_gates,
        kubernetes=kubernetes,
    )


async def _keep_trusted(
    api: ApiClient, name: str, keeper: CertificateKeeper, trusted: asyncio.Event
) -> None:
    await keeper.ready.wait()
    while True:
        try:
            await trust(api, name, keeper.ca_pem or "")
            trusted.set()
        except (ApiError, Unreachable) as fault:
            log.warning("the webhook configuration could not be checked: %s", fault)
        await keeper.changed(CHECK_PERIOD_S if trusted.is_set() else CHECK_SOON_S)
