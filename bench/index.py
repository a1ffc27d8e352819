"""The engine alone, without a socket or a disk: `python -m bench.index`.

Prints what a million blocks of an earlier life take to adopt and to hold, and how long the engine's
step takes for requests of 128 blocks among them. Times are CPU times of this process, and beside
each stands the same work done by the interpreter's own dict, so that a busy machine shows.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from onggi_core.engine.actions import Answer
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Adopted, Asked, ExtentTouched, SessionOpened
from onggi_core.engine.state import Facts
from onggi_core.identity import ROOT
from onggi_core.wire.replies import LoadPrepared, Reply, StorePrepared
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    LoadPrepare,
    Lookup,
    Request,
    SpaceSpec,
    StoreComplete,
    StoreOutcome,
    StorePrepare,
)

T = TypeVar("T")

MIB: Final = 1 << 20
PAGE_BYTES: Final = 64 * 1024
CHAIN: Final = 64
PROMPT: Final = 128
PROMPTS: Final = 100
EXTENTS: Final = 16
SPACE: Final = SpaceSpec(b"f" * 16, PAGE_BYTES, 16)


def engine_for(blocks: int) -> Engine:
    segment_bytes = 1024 * MIB
    made = Engine(
        Facts(
            epoch=b"e" * 16,
            arena="arena",
            arena_bytes=EXTENTS * 64 * MIB,
            data_offset=0,
            extent_bytes=64 * MIB,
            extents=EXTENTS,
            segment_bytes=segment_bytes,
            segments=blocks * PAGE_BYTES // segment_bytes + 1,
        )
    )
    for number in range(EXTENTS):
        made.step(ExtentTouched(number), 0.0)
    return made


def left_behind(blocks: int) -> Adopted:
    keys = [os.urandom(16) for _ in range(blocks)]
    return Adopted(
        SPACE,
        keys=keys,
        parents=[keys[at - 1] if at % CHAIN else ROOT for at in range(blocks)],
        places=[at * PAGE_BYTES for at in range(blocks)],
        checksums=[os.urandom(16) for _ in range(blocks)],
    )


def adoption(blocks: int) -> Engine:
    event, engine = left_behind(blocks), engine_for(blocks)
    begun_s = time.process_time()
    named = dict(zip(event.keys, range(blocks), strict=True))
    dict_s = time.process_time() - begun_s
    del named
    begun_s = time.process_time()
    engine.step(event, 0.0)
    print(f"adopt {blocks} blocks: {time.process_time() - begun_s:.2f} s CPU (dict {dict_s:.2f} s)")
    return engine


def memory(blocks: int) -> None:
    event, engine = left_behind(blocks), engine_for(blocks)
    tracemalloc.start()
    engine.step(event, 0.0)
    del event
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"hold {blocks} blocks: {held / blocks:.0f} bytes a block, keys included")


class Client:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = itertools.count(1)
        engine.step(SessionOpened(1), 0.0)
        self.ask(Hello(1, "bench", (SPACE,)))

    def ask(self, request: Request) -> Reply:
        actions = self.engine.step(Asked(1, next(self._numbers), request), 0.0)
        return next(action.reply for action in actions if isinstance(action, Answer))


def steps(engine: Engine) -> None:
    client = Client(engine)
    prompts = [tuple(os.urandom(16) for _ in range(PROMPT)) for _ in range(PROMPTS)]
    known = {key: key for prompt in prompts for key in prompt}
    tickets: list[int] = []

    def prepare(prompt: tuple[bytes, ...]) -> None:
        reply = client.ask(StorePrepare(0, ROOT, prompt))
        assert isinstance(reply, StorePrepared)
        tickets.append(reply.ticket)

    def load(prompt: tuple[bytes, ...]) -> None:
        reply = client.ask(LoadPrepare(0, prompt))
        assert isinstance(reply, LoadPrepared)
        assert reply.blocks == PROMPT
        tickets.append(reply.ticket)

    def seal(ticket: int) -> None:
        client.ask(StoreComplete(ticket, StoreOutcome.SEALED))

    def complete(ticket: int) -> None:
        client.ask(LoadComplete(ticket, LoadOutcome.LOADED, PROMPT))

    _each("128 dict.get", lambda prompt: list(map(known.get, prompt)), prompts)
    _each("STORE_PREPARE", prepare, prompts)
    _each("STORE_COMPLETE", seal, tickets)
    _each("LOOKUP", lambda prompt: client.ask(Lookup(prompt)), prompts)
    _each("LOOKUP again", lambda prompt: client.ask(Lookup(prompt)), prompts[:1] * PROMPTS)
    tickets.clear()
    _each("LOAD_PREPARE", load, prompts)
    _each("LOAD_COMPLETE", complete, tickets)
    tickets.clear()
    _each("LOAD again", load, prompts[:1] * PROMPTS)


def _each(what: str, work: Callable[[T], object], over: Sequence[T]) -> None:
    took_s = []
    for one in over:
        begun_s = time.perf_counter()
        work(one)
        took_s.append(time.perf_counter() - begun_s)
    took_s.sort()
    print(f"{what:15} {took_s[0] * 1e6:6.1f} us at best, {took_s[len(took_s) // 2] * 1e6:6.1f} p50")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.index", description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    blocks = parser.parse_args().blocks
    memory(blocks)
    gc.disable()  # as the agent while it starts
    engine = adoption(blocks)
    gc.freeze()
    steps(engine)


if __name__ == "__main__":
    main()
