"""HTTP for people, probes and scrapers: /healthz, /readyz, /metrics. Never on the request path."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from onggi_sidecar.log import error, event
from onggi_sidecar.metrics import Metrics

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_BYTES_MAX: Final = 4096
"""Nothing is ever posted here."""


class HttpServer:
    """Serves one agent's state. `unready` answers why the agent is not ready, or nothing."""

    def __init__(self, metrics: Metrics, unready: Callable[[], str]) -> None:
        self.port = 0
        self._metrics = metrics
        self._unready = unready
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_page)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self, host: str, port: int) -> None:
        """Listen. A port that is taken is reported and not fatal: the cache works without it,
        and two pods of one host network would otherwise exclude each other."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as fault:
            error(
                "http_unavailable",
                f"cannot serve HTTP on {host}:{port}: {fault.strerror}; probes and metrics of "
                "this agent are not served there, everything else works",
                host=host,
                port=port,
            )
            return
        _, self.port = self._runner.addresses[0][:2]
        event("http_listening", f"serving HTTP on {host}:{self.port}", host=host, port=self.port)

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._unready()
        return web.Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    async def _metrics_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": METRICS_TYPE})
