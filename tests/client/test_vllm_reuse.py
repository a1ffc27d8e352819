"""Blocks that are reused while they are being saved: what is kept is never somebody else's.

Seen in the field as preemption that frees blocks which a background store still reads, an abort
with more keys than computed blocks, and a preempted request that comes back while its store is
open.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest
from vllm_stand_ins import BLOCK, PAGE, SPACE, Request, page_of, step_output

from onggi import Client, block_keys
from onggi.arena import Arena
from onggi.connectors.vllm.copier import HostCopier, Pair
from onggi.connectors.vllm.layout import PageMap
from onggi.connectors.vllm.mover import FENCE_WAIT_S

JUNK = b"\xee" * PAGE
TOKENS = list(range(500, 500 + 4 * BLOCK))
INTERLEAVINGS = 1000


class GatedCopier(HostCopier):
    """Copies in only while the gate is open; says when a copy has come to the gate."""

    def __init__(self, pages: PageMap) -> None:
        super().__init__(pages)
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.delay_s = 0.0

    def copy_in(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        self.reached.set()
        assert self.gate.wait(30)
        if self.delay_s:
            time.sleep(self.delay_s)
        return super().copy_in(arena, pairs, after)


class Life:
    """One request of four blocks on a connector, computed and handed over for saving."""

    def __init__(self, sides: Any, name: str = "r", tokens: list[int] | None = None) -> None:
        self.sides, self.tokens = sides, TOKENS if tokens is None else tokens
        self.request = Request(name, self.tokens)
        self.copier = sides.copiers[0]
        self.memory = sides.memories[0]
        self.table = [0, 1, 2, 3]

    def compute(self, blocks: int) -> None:
        """The first `blocks` blocks are computed in one step, whose saves are handed over."""
        self.sides.scheduler.arrived(self.request)
        while self.sides.scheduler.matched(self.request, 0)[1]:
            time.sleep(0.002)  # its own save is still open: the engine asks again
        self.sides.scheduler.admitted(self.request, [self.table], 0)
        plan = self.sides.scheduler.plan(
            step_output({self.request.request_id: blocks * BLOCK}, {"r": self.table})
        )
        for number in range(blocks):
            self.memory.write(number, page_of(self.tokens[: (number + 1) * BLOCK]))
        self.sides.worker.after_forward(plan)

    def preempt(self) -> None:
        """The next step's fence, as the worker sees it before anything is overwritten."""
        plan = self.sides.scheduler.plan(step_output({}, {}, {self.request.request_id}))
        self.sides.worker.fence(plan)

    def settle(self) -> None:
        """Steps until no save is open."""
        for _ in range(2000):
            _, received = self.sides.worker.finished()
            self.sides.scheduler.reported(self.sides.worker.take_report(), received)
            if not self.sides.worker._owner:
                return
            time.sleep(0.002)
        raise AssertionError("a save never ends")


def kept(agent: Any, tokens: list[int]) -> list[bytes]:
    """The pages that the agent has for a prompt, as long as the run is."""
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    keys = block_keys(tokens, BLOCK)
    pages = [bytearray(PAGE) for _ in keys]
    count = client.load(keys, pages)
    client.close()
    return [bytes(page) for page in pages[:count]]


def right(tokens: list[int], blocks: int) -> list[bytes]:
    return [page_of(tokens[: (number + 1) * BLOCK]) for number in range(blocks)]


def test_a_copy_that_is_late_keeps_nothing_of_what_was_overwritten(
    agent: Any, make_sides: Any
) -> None:
    life = Life(make_sides(agent, copier=GatedCopier))
    life.compute(4)
    assert life.copier.reached.wait(30)
    began = time.monotonic()
    life.preempt()
    assert time.monotonic() - began >= FENCE_WAIT_S  # it gave the copy its chance
    for number in (2, 3):
        life.memory.write(number, JUNK)
    life.copier.gate.set()
    life.settle()
    assert kept(agent, TOKENS) == []


def test_a_copy_in_time_is_waited_for_and_kept(agent: Any, make_sides: Any) -> None:
    life = Life(make_sides(agent, copier=GatedCopier))
    life.compute(4)
    assert life.copier.reached.wait(30)
    life.copier.gate.set()
    life.preempt()
    for number in range(4):
        life.memory.write(number, JUNK)
    life.settle()
    assert kept(agent, TOKENS) in ([], right(TOKENS, 4))  # none on a machine that slept 0.1 s


def test_an_abort_keeps_no_more_than_was_computed(agent: Any, make_sides: Any) -> None:
    life = Life(make_sides(agent))
    life.compute(2)
    life.sides.scheduler.finished(life.request)
    life.settle()
    assert kept(agent, TOKENS) == right(TOKENS, 2)


def test_a_preempted_request_that_comes_back_stores_and_hits(agent: Any, make_sides: Any) -> None:
    life = Life(make_sides(agent, copier=GatedCopier))
    life.compute(4)
    assert life.copier.reached.wait(30)
    life.preempt()
    life.copier.gate.set()
    life.compute(4)
    life.settle()
    assert kept(agent, TOKENS) == right(TOKENS, 4)
    again = Request("again", [*TOKENS, 1])
    life.sides.scheduler.arrived(again)
    assert life.sides.scheduler.matched(again, 0) == (4 * BLOCK, False)
    assert life.sides.faults.total == 0


@pytest.mark.timeout(300)
def test_in_any_interleaving_what_is_kept_is_right(make_agent: Any, make_sides: Any) -> None:
    """Preemption, overwriting and the copy at random distances, on one connector."""
    agent = make_agent(extents=1)
    sides = make_sides(agent, copier=GatedCopier)
    rng = random.Random(4)
    sides.copiers[0].gate.set()
    found = 0
    for number in range(INTERLEAVINGS):
        tokens = [number * 100 + i for i in range(4 * BLOCK)]
        life = Life(sides, tokens=tokens)
        life.copier.delay_s = rng.choice([0.0, 0.0, 0.0005])
        life.compute(rng.randrange(1, 5))
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.001)
        life.preempt()
        for block in range(4):
            life.memory.write(block, JUNK)
        life.settle()
        sides.scheduler.finished(life.request)
        pages = kept(agent, tokens)
        assert pages == right(tokens, len(pages)), number
        found += len(pages)
    assert found > 0
    assert sides.faults.total == 0
