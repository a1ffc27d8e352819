"""An operator that answers reports with what a test wants, on loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from onggi_core.heartbeat import Directive, Heartbeat, Mode, dump_directive, parse_heartbeat


@dataclass
class Operator:
    """Answers heartbeats with whatever `answers` holds, then with Active."""

    port: int = 0
    beats: list[Heartbeat] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    answers: list[web.Response] = field(default_factory=list)
    mode: Mode = Mode.ACTIVE
    interval_s: float = 1.0
    drain: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        self.beats.append(parse_heartbeat(await request.read()))
        self.heard.set()
        if self.answers:
            return self.answers.pop(0)
        told = Directive(self.mode, self.interval_s, drain=self.drain)
        return web.Response(body=dump_directive(told))


@asynccontextmanager
async def serving(
    *answers: web.Response,
    mode: Mode = Mode.ACTIVE,
    interval_s: float = 1.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Operator]:
    found = Operator(answers=list(answers), mode=mode, interval_s=interval_s)
    app = web.Application()
    app.router.add_post("/v1/heartbeat", found.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


def run(scene: Coroutine[Any, Any, None]) -> None:
    """On a loop of its own, which leaves the process's current loop as it is."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(scene)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
