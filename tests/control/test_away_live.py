"""The controller while its API server is away, busy, or forgets what it was watched from."""

import itertools
import json
import operator
import threading
import time
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web

from onggi_operator.kube.backoff import FIRST_S, SPREAD

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PATIENCE_S = 90.0
TRIES = 5
"""Of each watch while the server is away: waits of half a second, then twice as long each time."""

POOLS = "/apis/onggi.dev/v1alpha1/namespaces/team-away/kvcachepools"


@pytest.fixture
def front(server: Any, api_front: Any) -> Iterator[Any]:
    with api_front.standing_before(server) as made:
        yield made


@pytest.fixture
def controller(installed: Any, front: Any) -> Iterator[Any]:
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
    server: Any, front: Any, controller: Any
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
    server: Any, front: Any, controller: Any
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
    server: Any, front: Any, controller: Any
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
