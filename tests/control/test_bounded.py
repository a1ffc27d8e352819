"""Callers that are slow or many cost no more than they may."""

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, web

from onggi_operator.bounded import bounded
from onggi_operator.serving import serving


def app(gate: asyncio.Event, *, time_s: float, in_flight_max: int) -> web.Application:
    async def wait(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="done")

    made = web.Application(middlewares=[bounded(time_s=time_s, in_flight_max=in_flight_max)])
    made.router.add_get("/", wait)
    return made


async def test_requests_beyond_the_bound_are_sent_away_and_those_within_are_served() -> None:
    gate = asyncio.Event()
    async with (
        serving(app(gate, time_s=60, in_flight_max=2), "127.0.0.1", 0) as port,
        ClientSession() as session,
    ):

        async def status() -> int:
            async with session.get(f"http://127.0.0.1:{port}/") as answer:
                return answer.status

        tasks = [asyncio.create_task(status()) for _ in range(5)]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert [task.result() for task in done] == [503, 503, 503]
        gate.set()
        assert await asyncio.gather(*waiting) == [200, 200]


async def test_a_request_that_takes_too_long_is_ended() -> None:
    async with (
        serving(app(asyncio.Event(), time_s=0.05, in_flight_max=1), "127.0.0.1", 0) as port,
        ClientSession() as session,
    ):
        for _ in range(2):
            async with session.get(f"http://127.0.0.1:{port}/") as answer:
                assert answer.status == 408
                assert await answer.text() == "not done within 0.05 seconds\n"


@pytest.mark.parametrize("host", ["127.0.0.1", None])
async def test_a_server_listens_where_it_is_told_or_everywhere(
    apiserver: Any, host: str | None
) -> None:
    # Port 0 would be another one for each address family.
    (port,) = apiserver.free_ports(1)
    gate = asyncio.Event()
    gate.set()
    async with (
        serving(app(gate, time_s=5, in_flight_max=1), host, port),
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as answer,
    ):
        assert answer.status == 200
