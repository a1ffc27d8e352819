"""The plain HTTP side of both programs: liveness, readiness, metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


def health_app(missing: Callable[[], str | None], registry: CollectorRegistry) -> web.Application:
    """`missing` says what readiness still waits for, or None."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        waits_for = missing()
        if waits_for is None:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"waiting for {waits_for}\n")

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
