"""What the agent tells others: HTTP with its metrics, and heartbeats to the operator.

Loaded after the socket listens: aiohttp and OpenTelemetry take most of the time a start takes.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from onggi_core.heartbeat import Heartbeat
from onggi_sidecar.config import AgentConfig
from onggi_sidecar.figures import make_heartbeat
from onggi_sidecar.heartbeat import LAST_S, HeartbeatPoster
from onggi_sidecar.http import HttpServer
from onggi_sidecar.metrics import Metrics
from onggi_sidecar.obedience import Obedience
from onggi_sidecar.tally import Tally


class Reporting:
    """One agent's reports. `figures` is asked on the loop, each time something is told."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        figures: Callable[[], dict[str, Any]],
        tally: Tally,
        disk_seconds: deque[tuple[str, float]],
        unready: Callable[[], str],
    ) -> None:
        self._config = config
        self._figures = figures
        self._metrics = Metrics(figures, tally, disk_seconds)
        self._http = HttpServer(self._metrics, tally, unready, self._stats)
        self._poster: HeartbeatPoster | None = None
        self._posting: asyncio.Task[None] | None = None

    def _stats(self) -> dict[str, Any]:
        config = self._config
        who = {
            "pool": config.pool,
            "pod_uid": config.pod_uid,
            "socket": str(config.socket.absolute()),
        }
        return {**self._figures(), **who}

    async def serve_http(self) -> None:
        await self._http.start(self._config.http_host, self._config.http_port)

    def post_heartbeats(
        self,
        obedience: Obedience,
        *,
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Until close(). `ended` hears of the task's end, whatever its cause."""
        sequence = itertools.count(1)

        def report() -> Heartbeat:
            return make_heartbeat(
                self._figures(),
                self._config,
                sequence=next(sequence),
                draining=obedience.draining,
                told_bytes=obedience.told_bytes,
            )

        self._poster = HeartbeatPoster(
            self._config,
            report=report,
            obey=obedience.obey,
            dice=random.Random(),  # noqa: S311  spreads agents out, hides nothing
        )
        self._posting = asyncio.create_task(self._poster.run())
        self._posting.add_done_callback(ended)

    async def close(self) -> None:
        if self._poster is not None and self._posting is not None:
            self._poster.end()
            await asyncio.wait((self._posting,), timeout=LAST_S)
            self._posting.cancel()
        await self._http.close()
        self._metrics.close()
