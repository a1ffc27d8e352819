"""How long the agent takes to say that 128 blocks are there, while it also works for its disk.

All clients are processes of their own that ask again as soon as they have an answer: with four of
them on two cores that is an overload, which is the case a 99th percentile is for. Meanwhile another
process stores new blocks and loads old ones from disk, so the agent writes and reads all the time.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final

from bench.agent import DEADLINE_S, AgentUnderTest, attach, space_for
from bench.entries import AtMost, Entry, Row, Unit
from bench.micro.traffic import Traffic
from bench.pages import chain
from bench.peers.redis import RedisClient, RedisServer, why_absent
from bench.peers.worker import if_possible, lmcache, mooncake
from bench.sizes import MIB, Sizes
from bench.timing import quantile
from onggi import Client, LoadOutcome

BLOCKS: Final = 128
PAGE_BYTES: Final = 16 * 1024
MOONCAKE_PAGE: Final = 16 * 1024
LMCACHE_CHUNKS: Final = 8
CLIENTS: Final = (1, 4)
MAIN: Final = "4-clients-and-disk"
ALONE: Final = "1-client-no-disk"
PAUSE_S: Final = 0.003
"""Of the paced clients: four engines that ask some 300 times a second each."""
WARM_UP_LOOKUPS: Final = 200
START_S: Final = 120.0
"""Python processes that import a few modules, on a busy machine."""
HOW: Final = (
    "4 client processes look up 128 keys, each again at once, on the board or, where they were "
    "pushed out to disk, over the socket; the agent writes to and reads from its disk tier "
    "meanwhile. redis: one EXISTS of the same keys, the same processes. Rows: no disk traffic, "
    "1 client, 4 that rest 3 ms between lookups as engines would, and all over the socket. "
    "mooncake: batch_is_exist of 128 keys through "
    "mooncake_client; lmcache_mp: LOOKUP of 8 chunks until its status is there."
)


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
    pause_s: float = 0.0
    """Between two lookups of a client."""
    by_socket: bool = False
    """Whether the board is left aside, as where a processor cannot read one."""


def lookups(sizes: Sizes) -> list[Entry]:
    """lookup_128_p50 and lookup_128_p99. Raises WrongAnswer, AgentFailed."""
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        if no_redis := why_absent():
            absent["redis"] = no_redis
        server = stack.enter_context(RedisServer()) if not no_redis else None
        agent = stack.enter_context(AgentUnderTest(memory="128MiB", disk="512MiB", extent="16MiB"))
        task = _prepared(agent, server, sizes)
        found = {f"{_clients(number)}-no-disk": _crowd(task, number) for number in CLIENTS}
        with Traffic(agent.socket):
            paced = dataclasses.replace(task, pause_s=PAUSE_S)
            found[f"{_clients(4)}-paced-and-disk"] = _crowd(paced, 4)
            asking = dataclasses.replace(task, by_socket=True)
            for number in CLIENTS:
                found[f"{_clients(number)}-and-disk-by-socket"] = _crowd(asking, number)
            for number in CLIENTS:
                found[f"{_clients(number)}-and-disk"] = _crowd(task, number)
    others, absent_alone = _alone(sizes)
    entries = []
    for share, label, bound_s in ((0.5, "p50", 80e-6), (0.99, "p99", 1e-3)):
        name = f"lookup_128_{label}"
        rows = []
        for what, (mine, redis) in found.items():
            peers = {"redis": quantile(redis, share)} if redis else {}
            missing = dict(absent)
            if what == ALONE:
                peers |= {peer: quantile(took, share) for peer, took in others.items()}
                missing |= absent_alone
            where = "" if what == MAIN else f"/{what}"
            row = Row(name + where, quantile(mine, share), Unit.SECONDS, peers, missing)
            rows.append(row)
        *rest, main = rows
        command = "python -m bench lookup"
        entries.append(Entry(main, (AtMost(bound_s),), command, HOW, tuple(rest)))
    return entries


def _clients(number: int) -> str:
    return f"{number}-{'client' if number == 1 else 'clients'}"


def _prepared(agent: AgentUnderTest, server: RedisServer | None, sizes: Sizes) -> _Task:
    keys = chain("lookup", 0, BLOCKS)
    client = agent.client(space_for(PAGE_BYTES))
    stored = client.store(keys, [bytes(PAGE_BYTES)] * BLOCKS).stored
    client.close()
    if stored != BLOCKS:
        raise WrongAnswer(f"{stored} of {BLOCKS} blocks were stored")
    redis_socket = ""
    if server is not None:
        server.client().store(keys, [memoryview(b"x")] * BLOCKS)
        redis_socket = str(server.socket)
    return _Task(str(agent.socket), redis_socket, sizes.lookup_rounds, sizes.lookups_a_round)


def _alone(sizes: Sizes) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of one client of the peers that are installed, and why others are not there."""
    absent: dict[str, str] = {}
    found: dict[str, list[float]] = {}
    if not sizes.peers:
        return found, dict.fromkeys(("mooncake", "lmcache_mp"), "left out")
    nbytes, count = 16 * MIB, sizes.lookup_rounds * sizes.lookups_a_round // 10
    for name, begin, page, pages in (
        ("mooncake", lambda: mooncake("shm", nbytes), MOONCAKE_PAGE, BLOCKS),
        ("lmcache_mp", lambda: lmcache(nbytes), MIB, LMCACHE_CHUNKS),
    ):
        with ExitStack() as stack:
            worker = if_possible(stack, absent, name, begin)
            if worker is not None:
                worker.prepare("load", page, page * pages)
                worker.find(count // 10)
                found[name] = worker.find(count)
    return found, absent


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

    if task.by_socket and (session := client.showing()) is not None:
        session.shown = None

    def ask_onggi() -> int:
        return client.lookup(keys).pending  # what the traffic pushed out to disk counts too

    def use() -> None:
        """As an engine would: blocks that are asked for and never used go some day."""
        load = client.load_prepare(keys, wait_s=1.0).wait(DEADLINE_S)
        client.finish_load(load, LoadOutcome.LOADED)

    asks: list[Callable[[], int]] = [ask_onggi]
    if task.redis_socket:
        redis = RedisClient(Path(task.redis_socket))
        asks.append(lambda: redis.count(keys))
    use()
    for ask in asks:
        _timed(ask, WARM_UP_LOOKUPS)
    times: list[list[float]] = [[], []]
    for _ in range(task.rounds):
        use()
        for number, ask in enumerate(asks):
            barrier.wait()
            times[number] += _timed(ask, task.lookups_a_round, task.pause_s)
    client.close()
    results.put(tuple(times))


def _timed(ask: Callable[[], int], count: int, pause_s: float = 0.0) -> list[float]:
    times = []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s)
        begin_s = time.perf_counter()
        found = ask()
        times.append(time.perf_counter() - begin_s)
        if found != BLOCKS:
            raise WrongAnswer(f"{found} of {BLOCKS} blocks were found")
    return times
