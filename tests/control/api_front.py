"""Something that stands before the API server on loopback, to cut a program off from it, answer in
its stead, and write down what is asked."""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

AT_ONCE_S = 0.2
"""Less than the shortest wait, which is a quarter of a second."""


@dataclass
class Front:
    """Stands before the API server on loopback: passes calls on, counts them, and answers instead
    of it when told to."""

    target: str
    ca: Path
    port: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    tried: list[float] = field(default_factory=list)
    """When pods were asked to be watched, while it was away."""
    answer: Callable[[web.Request], web.Response | None] = lambda _: None
    away: bool = False
    writes: list[tuple[float, str]] = field(default_factory=list)
    """When (monotonic), and of what, for those that were let through."""
    open: set[asyncio.Transport] = field(default_factory=set)

    def go_away(self) -> None:
        """Every call that is under way breaks, watches too."""
        self.away = True
        self.loop.call_soon_threadsafe(lambda: [one.abort() for one in self.open])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        watching = "watch" in request.query
        kind = f"{'WATCH' if watching else request.method} {request.path.rsplit('/', 1)[-1]}"
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.away:
            if kind == "WATCH pods":
                self._note(time.monotonic())
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if (instead := self.answer(request)) is not None:
            return instead
        if request.method in ("POST", "PATCH", "PUT", "DELETE"):
            self.writes.append((time.monotonic(), request.path))
        return await self._pass_on(request)

    def _note(self, now_s: float) -> None:
        """The HTTP library asks once more, at once, when a connection of before turns out dead."""
        if not self.tried or now_s - self.tried[-1] > AT_ONCE_S:
            self.tried.append(now_s)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {
            key: value
            for key, value in request.headers.items()
            if key in ("Authorization", "Content-Type", "Accept")
        }
        async with self.session.request(
            request.method,
            self.target + request.path_qs,
            data=await request.read() or None,
            headers=headers,
        ) as answer:
            back = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.content_type}
            )
            await back.prepare(request)
            assert request.transport is not None
            self.open.add(transport := request.transport)
            try:
                async for chunk in answer.content.iter_any():
                    await back.write(chunk)
            except ConnectionResetError:
                pass  # the caller has gone, or was sent away
            finally:
                self.open.discard(transport)
            return back

    def run(self, context: ssl.SSLContext, ready: threading.Event) -> None:
        asyncio.run(self._serve(context, ready))

    async def _serve(self, context: ssl.SSLContext, ready: threading.Event) -> None:
        trust = ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self.stopping = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self.session:
            app = web.Application(client_max_size=1 << 24)
            app.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            self.port = runner.addresses[0][1]
            ready.set()
            await self.stopping.wait()
            await runner.cleanup()


@contextlib.contextmanager
def standing_before(server: Any) -> Iterator[Front]:
    """With the API server's own certificate: the client trusts it as it trusts the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certs = server.folder / "certs"
    context.load_cert_chain(certs / "apiserver.crt", certs / "apiserver.key")
    made, ready = Front(server.url, server.ca_file), threading.Event()
    thread = threading.Thread(target=made.run, args=(context, ready), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield made
    made.loop.call_soon_threadsafe(made.stopping.set)
    thread.join(30)
