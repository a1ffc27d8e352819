"""Two clients that load at once, each a process of its own, against memcpy on two threads.

Both sides move the same bytes: two batches at a time. A round begins for both clients when both
are ready and ends when the later one is done.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Final

from bench.agent import DEADLINE_S, AgentUnderTest, attach, space_for
from bench.entries import Against, Entry, Row, Unit
from bench.micro.copies import WrongBytes
from bench.pages import Region, chain
from bench.peers import memcpy
from bench.sizes import MIB, Sizes
from bench.timing import interleaved, median
from onggi import Client

CLIENTS: Final = 2
BATCH_BYTES: Final = 16 * MIB
PAGE_BYTES: Final = MIB
START_S: Final = 60.0
HOW: Final = (
    "Two client processes load 16 MiB batches of 1 MiB pages at once, each its own blocks; a round "
    "lasts until both are done. memcpy: two threads, a memmove of 16 MiB each, at once."
)


def two_clients(sizes: Sizes) -> list[Entry]:
    """load_two_clients. Raises WrongBytes, AgentFailed."""
    batches = sizes.working_set_bytes // BATCH_BYTES // CLIENTS
    with AgentUnderTest(memory=sizes.arena) as agent:
        pairs = [_start(str(agent.socket), number, batches) for number in range(CLIENTS)]
        source, target = (Region(sizes.working_set_bytes) for _ in range(2))
        threads = ThreadPoolExecutor(CLIENTS)  # made last: what forks may have no threads

        def onggi(number: int) -> float:
            at_s = time.perf_counter() + 0.001
            for pipe, _ in pairs:
                pipe.send((number % batches, at_s))
            ends = [_heard(pipe) for pipe, _ in pairs]
            return max(ends) - at_s

        def by_memcpy(number: int) -> None:
            memcpy.copy_two(threads, target, source, number, BATCH_BYTES)

        rounds = max(1, sizes.times_around) * 2 * batches
        times = interleaved([onggi, by_memcpy], rounds=rounds, warm_up=batches)
        for pipe, process in pairs:
            pipe.send(None)
            process.join()
        threads.shutdown()
    mine, theirs = (CLIENTS * BATCH_BYTES / 2**30 / median(took) for took in times)
    row = Row("load_two_clients", mine, Unit.GIB_PER_S, {"memcpy_2_threads": theirs})
    targets = (Against("memcpy_2_threads", 0.9),)
    return [Entry(row, targets, "python -m bench load", HOW)]


def _start(socket: str, number: int, batches: int) -> tuple[Any, Any]:
    """A client that has stored its blocks. Raises WrongBytes."""
    spawn = multiprocessing.get_context("spawn")
    mine, its = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(socket, number, batches, its), daemon=True)
    process.start()
    its.close()
    _heard(mine)
    return mine, process


def _heard(pipe: Connection) -> float:
    if not pipe.poll(START_S):
        raise WrongBytes(f"a client said nothing for {START_S:.0f} s")
    try:
        return float(pipe.recv())
    except EOFError as gone:
        raise WrongBytes("a client ended before its time") from gone


def _serve(socket: str, number: int, batches: int, pipe: Connection) -> None:
    """Answers each round, begun at a time that all clients are told, with when it was over. The
    monotonic clock is one for all processes of a machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = (Region(batches * BATCH_BYTES) for _ in range(2))
    source.fill_differently()
    client = Client(socket, spaces=[space_for(PAGE_BYTES)], deadline_s=DEADLINE_S)
    attach(client)
    blocks = BATCH_BYTES // PAGE_BYTES
    keys = [chain(f"client-{number}", batch, blocks) for batch in range(batches)]
    for batch, chained in enumerate(keys):
        stored = client.store(chained, source.pages(batch, BATCH_BYTES, PAGE_BYTES)).stored
        if stored != blocks:
            raise WrongBytes(f"{stored} of {blocks} blocks of batch {batch} were stored")
    to = [target.pages(batch, BATCH_BYTES, PAGE_BYTES) for batch in range(batches)]
    pipe.send(0.0)
    while (asked := pipe.recv()) is not None:
        batch, at_s = asked
        while time.perf_counter() < at_s:
            pass  # both begin at once, without a wake-up in what is timed
        if client.load(keys[batch], to[batch]) != blocks:
            raise WrongBytes(f"batch {batch} was not loaded whole")
        pipe.send(time.perf_counter())
    if target.view != source.view:
        raise WrongBytes("other bytes came back than were stored")
    client.close()
