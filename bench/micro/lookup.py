"""How long the agent takes to say that 128 blocks are there, with one client and with four.

Against one EXISTS of the same 128 keys. All clients are processes of their own that ask again as
soon as they have an answer: with four of them on two cores that is an overload, which is the case
a 99th percentile is for.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final

from bench.agent import DEADLINE_S, AgentUnderTest, attach
from bench.pages import chain, space_for
from bench.peers.redis import RedisClient, RedisServer
from bench.rows import Row, Unit
from bench.sizes import Sizes
from bench.timing import quantile
from onggi import Client

BLOCKS: Final = 128
PAGE_BYTES: Final = 16 * 1024
CLIENTS: Final = (1, 4)
WARM_UP_LOOKUPS: Final = 200
START_S: Final = 120.0
"""Python processes that import a few modules, on a busy machine."""


class WrongAnswer(Exception):
    """A lookup did not find what is there."""


@dataclass(frozen=True)
class _Task:
    """What one client process needs; it has to be sent to it."""

    agent_socket: str
    redis_socket: str
    """Empty without Redis."""
    rounds: int
    lookups_a_round: int


def lookups(server: RedisServer | None, sizes: Sizes) -> list[Row]:
    """Rows of p50 and p99. server: None leaves Redis out. Raises WrongAnswer,
    AgentFailed."""
    keys = chain("lookup", 0, BLOCKS)
    with AgentUnderTest(memory="64MiB") as agent:
        client = agent.client(space_for(PAGE_BYTES))
        stored = client.store(keys, [bytes(PAGE_BYTES)] * BLOCKS).stored
        client.close()
        if stored != BLOCKS:
            raise WrongAnswer(f"{stored} of {BLOCKS} blocks were stored")
        redis_socket = ""
        peer = "no redis here"
        if server is not None:
            redis = server.client()
            redis.store(keys, [memoryview(b"x")] * BLOCKS)
            redis_socket, peer = str(server.socket), f"{redis.name} EXISTS"
        task = _Task(str(agent.socket), redis_socket, sizes.lookup_rounds, sizes.lookups_a_round)
        rows: list[Row] = []
        for clients in CLIENTS:
            mine, peers = _crowd(task, clients)
            for share, label in ((0.5, "p50"), (0.99, "p99")):
                noun = "client" if clients == 1 else "clients"
                name = f"lookup/{BLOCKS}-blocks/{clients}-{noun}/{label}"
                theirs = quantile(peers, share) if peers else None
                rows.append(Row(name, quantile(mine, share), Unit.SECONDS, peer, theirs))
    return rows


def _crowd(task: _Task, clients: int) -> tuple[list[float], list[float]]:
    """Seconds of every lookup and of every EXISTS of all clients together."""
    spawn = multiprocessing.get_context("spawn")  # a fork would share the parent's sockets
    barrier = spawn.Barrier(clients, timeout=START_S)
    results: Any = spawn.Queue()
    workers = [
        spawn.Process(target=_client, args=(task, barrier, results), daemon=True)
        for _ in range(clients)
    ]
    for worker in workers:
        worker.start()
    mine: list[float] = []
    peers: list[float] = []
    for _ in workers:
        some, others = results.get(timeout=START_S)
        mine += some
        peers += others
    for worker in workers:
        worker.join()
    return mine, peers


def _client(task: _Task, barrier: Barrier, results: Any) -> None:
    """One client process: all of them turn from one store to the other together."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench ends its workers itself
    keys = chain("lookup", 0, BLOCKS)
    client = Client(task.agent_socket, spaces=[space_for(PAGE_BYTES)], deadline_s=DEADLINE_S)
    attach(client)

    def ask_onggi() -> int:
        return client.lookup(keys).ready

    asks: list[Callable[[], int]] = [ask_onggi]
    if task.redis_socket:
        redis = RedisClient(Path(task.redis_socket))
        asks.append(lambda: redis.count(keys))
    for ask in asks:
        _timed(ask, WARM_UP_LOOKUPS)
    times: list[list[float]] = [[], []]
    for _ in range(task.rounds):
        for number, ask in enumerate(asks):
            barrier.wait()
            times[number] += _timed(ask, task.lookups_a_round)
    client.close()
    results.put(tuple(times))


def _timed(ask: Callable[[], int], count: int) -> list[float]:
    times = []
    for _ in range(count):
        begin_s = time.perf_counter()
        found = ask()
        times.append(time.perf_counter() - begin_s)
        if found != BLOCKS:
            raise WrongAnswer(f"{found} of {BLOCKS} blocks were found")
    return times
