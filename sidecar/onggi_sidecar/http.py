"""HTTP for people, probes and scrapers: /healthz, /readyz, /metrics, and /stats for the doctor.
Never on the request path."""

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from onggi_sidecar.log import error, event
from onggi_sidecar.metrics import Metrics
from onggi_sidecar.tally import Tally

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_BYTES_MAX: Final = 4096
"""Nothing is ever posted here."""
LISTEN_WITHIN_S: Final = 5.0
"""http_host may be a name, and a name server may be silent."""
LOOPBACK: Final = ("127.0.0.1", "::1")
END_WITHIN_S: Final = 1.0
"""For answers that are being sent when the agent is told to end."""
CONNECTIONS_MAX: Final = 64
"""Open at once; the oldest gives way, and is counted. Every pod of the cluster can connect, and
idle connections must not use up the descriptors that clients and disk tier need."""


class HttpServer:
    """Serves one agent's state. `unready` answers why the agent is not ready, or nothing; `stats`
    all figures, which have names of clients in them and are told inside the pod alone."""

    def __init__(
        self,
        metrics: Metrics,
        tally: Tally,
        unready: Callable[[], str],
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        self._stats = stats
        self.port = 0
        self._tally = tally
        self._metrics = metrics
        self._unready = unready
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_page)
        app.router.add_get("/stats", self._stats_page)
        self._listening: asyncio.Server | None = None
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=END_WITHIN_S
        )

    async def start(self, host: str, port: int) -> None:
        """Listen. A port that is taken is reported and not fatal: the cache works without it,
        and two pods of one host network would otherwise exclude each other."""
        await self._runner.setup()
        try:
            async with asyncio.timeout(LISTEN_WITHIN_S):
                loop = asyncio.get_running_loop()
                listening = await loop.create_server(self._accept, host, port)
            if not listening.sockets:  # asyncio takes a refused socket for a missing family
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        except OSError as fault:
            error(
                "http_unavailable",
                f"cannot serve HTTP on {host}:{port}: {fault.strerror or 'timed out'}; probes and "
                "metrics of this agent are not served there, and `onggi doctor` does not reach it; "
                "everything else works. Give it another http_host or http_port (0: any free port)",
                host=host,
                port=port,
            )
            return
        self._listening = listening
        self.port = listening.sockets[0].getsockname()[1]
        event("http_listening", f"serving HTTP on {host}:{self.port}", host=host, port=self.port)

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        open_now = server.connections
        if len(open_now) >= CONNECTIONS_MAX:
            self._tally.fault("http_crowded")
            open_now[0].force_close()
        return server()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._unready()
        return web.Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    async def _metrics_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": METRICS_TYPE})

    async def _stats_page(self, request: web.Request) -> web.Response:
        if request.remote not in LOOPBACK:
            raise web.HTTPForbidden(text="only from inside the pod\n")
        return web.json_response(self._stats())
