"""The controller while its API server is away, busy, or forgets what it was watched from."""

import asyncio
import itertools
import json
import operator
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from onggi_operator.kube.backoff import FIRST_S, SPREAD

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PATIENCE_S = 90.0
TRIES = 5
"""Of each watch while the server is away: waits of half a second, then twice as long each time."""
AT_ONCE_S = 0.2
"""Less than the shortest wait, which is a quarter of a second."""

POOLS = "/apis/onggi.dev/v1alpha1/namespaces/team-away/kvcachepools"


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


@pytest.fixture
def front(server: Any, tmp_path: Path) -> Iterator[Front]:
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


@pytest.fixture
def controller(installed: Any, front: Front) -> Iterator[Any]:
    installed.namespace("team-away")
    with installed.process("controller", api_url=f"https://127.0.0.1:{front.port}") as part:
        yield part


def make_pool(server: Any, name: str) -> None:
    body = {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name},
        "spec": {},
    }
    server.apply(POOLS, body)


def wait_seen(server: Any, name: str, part: Any) -> None:
    """Until the controller wrote the pool's status."""
    deadline = time.monotonic() + PATIENCE_S
    while server.request("GET", f"{POOLS}/{name}")["status"].get("observedGeneration") != 1:
        assert part.process.poll() is None, part.log.read_text()[-3000:]
        assert time.monotonic() < deadline, part.log.read_text()[-3000:]
        time.sleep(0.2)


def ready(part: Any) -> bool:
    url = f"http://127.0.0.1:{part.health_port}/readyz"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == HTTPStatus.OK)


def test_while_the_server_is_away_it_stays_and_then_goes_on_without_listing_anew(
    server: Any, front: Front, controller: Any
) -> None:
    make_pool(server, "before")
    wait_seen(server, "before", controller)
    time.sleep(2)  # so that watches are up
    front.calls.clear()
    front.go_away()
    make_pool(server, "meanwhile")
    deadline = time.monotonic() + PATIENCE_S
    while len(front.tried) < TRIES:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ready(controller)
    tries, past_s = sum(front.calls.values()), time.monotonic() - front.tried[0]
    front.calls.clear()
    front.away = False
    wait_seen(server, "meanwhile", controller)
    waits_s = [b - a for a, b in itertools.pairwise(front.tried[:TRIES])]
    least_s = [(1 - SPREAD) * FIRST_S * 2**n for n in range(TRIES - 1)]
    assert all(map(operator.ge, waits_s, least_s)), "each caller waits longer every time"
    assert tries <= 20 + 8 * past_s
    assert front.calls.get("GET pods", 0) == 0, "the watch goes on where it was"


def test_a_busy_server_is_asked_no_sooner_than_it_says(
    server: Any, front: Front, controller: Any
) -> None:
    make_pool(server, "calm")
    wait_seen(server, "calm", controller)
    refused: list[float] = []

    def too_many(request: web.Request) -> web.Response | None:
        if request.method != "PATCH" or not request.path.endswith("/status"):
            return None
        refused.append(time.monotonic())
        text = json.dumps({"kind": "Status", "code": 429, "reason": "TooManyRequests"})
        return web.Response(status=429, headers={"Retry-After": "5"}, text=text)

    front.answer = too_many
    make_pool(server, "busy")
    deadline = time.monotonic() + PATIENCE_S
    while len(refused) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    front.answer = lambda _: None
    assert min(b - a for a, b in itertools.pairwise(refused)) >= 5.0
    wait_seen(server, "busy", controller)


def test_a_watch_that_expired_is_followed_by_a_list(
    server: Any, front: Front, controller: Any
) -> None:
    make_pool(server, "old")
    wait_seen(server, "old", controller)
    expired = threading.Event()

    def gone(request: web.Request) -> web.Response | None:
        if "watch" in request.query and request.path == "/api/v1/pods" and not expired.is_set():
            expired.set()
            text = json.dumps({"kind": "Status", "code": 410, "reason": "Expired"})
            return web.Response(status=410, text=text)
        return None

    front.calls.clear()
    front.answer = gone
    front.go_away()
    time.sleep(2)
    front.away = False
    assert expired.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not front.calls.get("GET pods"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    make_pool(server, "new")
    wait_seen(server, "new", controller)
