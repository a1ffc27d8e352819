"""Both sides around a small engine: whatever the order of things, no wrong byte is kept or used."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import pytest
from engine_harness import soon
from tiny_engine import TinyEngine, run_until_idle
from vllm_stand_ins import BLOCK, PAGE, SPACES, Memory, Sides, page_of

from onggi import Client, block_keys
from onggi.arena import Arena
from onggi.connectors.vllm.copier import HostCopier, Load, Pair
from onggi.connectors.vllm.layout import PageMap

SEEDS = range(150)


class SpoiltCopier(HostCopier):
    """Copies late, and sometimes not at all."""

    def __init__(self, pages: PageMap) -> None:
        super().__init__(pages)
        self.rng = random.Random(0)
        self.slow = 0.0
        self.failing = 0.0

    def copy_in(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        if self.rng.random() < self.slow:
            time.sleep(self.rng.random() * 0.004)
        if self.rng.random() < self.failing:
            raise OSError("spoilt on purpose")
        return super().copy_in(arena, pairs, after)

    def copy_out(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        if self.rng.random() < self.failing:
            return False
        return super().copy_out(arena, pairs, after)

    def load(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> Load:
        load = super().load(arena, pairs, after)
        return SpoiltLoad(load) if self.rng.random() < self.failing else load


class SpoiltLoad:
    """Brings every byte, then says that they are worth nothing."""

    def __init__(self, load: Load) -> None:
        self.help, self.wait, self._end = load.help, load.wait, load.end

    def end(self) -> bool:
        self._end()
        return False


def check_all_that_is_kept(agent: Any, engine: TinyEngine) -> int:
    """Every block the agent holds has the bytes of its tokens. Returns how many were looked at."""
    ranks = len(engine.memories)
    client = Client(agent.socket_path, spaces=SPACES[:ranks], deadline_s=30.0)
    looked = 0
    for live in engine.done:
        tokens = live.request.all_token_ids
        keys = block_keys(tokens, BLOCK)
        for number, key in enumerate(keys):
            for rank in range(ranks):
                page = bytearray(PAGE)
                if client.load([key], [page], wait_s=30.0, space=rank):
                    right = page_of(tokens[: (number + 1) * BLOCK], rank)
                    assert bytes(page) == right, (live.request.request_id, number, rank)
                    looked += 1
    client.close()
    return looked


def prompts(rng: random.Random) -> list[int]:
    """A prompt of one of three families that share beginnings."""
    family = rng.randrange(3)
    return [family * 1000 + i for i in range(rng.randrange(1, 9 * BLOCK))]


@pytest.mark.parametrize("seed", SEEDS)
def test_preemption_aborts_failures_and_late_copies(
    make_agent: Any, make_sides: Any, seed: int
) -> None:
    """Of every four seeds one has an engine that drafts, and one such a pipeline, if it has two
    ranks."""
    rng = random.Random(seed)
    agent = make_agent(extents=1, segments=rng.choice([0, 4]))
    sides: Sides = make_sides(
        agent,
        blocks=rng.choice([14, 20, 40]),
        ranks=1 + seed % 2,
        copier=SpoiltCopier,
        layerwise=seed % 3 > 0,
        unasked={0} if seed % 4 == 3 else set(),
    )
    failing = rng.choice([0.0, 0.0, 0.2])
    for number, copier in enumerate(sides.copiers):
        copier.rng = random.Random(seed + number)
        copier.slow = rng.choice([0.0, 0.5, 1.0])
        copier.failing = failing
    engine = TinyEngine(sides, drafts=seed % 4 > 1)
    names = iter(range(100))

    def each_step(number: int) -> None:
        if number < 40 and rng.random() < 0.3:
            engine.add(f"r{next(names)}", prompts(rng), rng.randrange(1, 24))
        if rng.random() < 0.03 and (engine.running or engine.loading or engine.waiting):
            everyone = [*engine.running, *engine.waiting, *engine.loading.values()]
            engine.abort(rng.choice(everyone).request.request_id)

    for _ in range(3):
        engine.add(f"r{next(names)}", prompts(rng), rng.randrange(1, 24))
    run_until_idle(engine, each_step)
    assert sorted(engine.free) == list(range(sides.memories[0].blocks))  # no block lost, none twice
    if not failing:
        assert sides.faults.total == 0
    check_all_that_is_kept(agent, engine)
    assert soon(lambda: agent.stats()["open_loads"] == 0)
    assert soon(lambda: agent.stats()["open_stores"] == 0)


def test_what_one_engine_computed_another_one_loads(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent()
    first, second = TinyEngine(make_sides(agent)), TinyEngine(make_sides(agent))
    tokens = list(range(100))
    first.add("a", tokens, 20)
    run_until_idle(first, lambda _: time.sleep(0.001))
    assert check_all_that_is_kept(agent, first) == 119 // BLOCK
    second.add("a", tokens, 20)
    run_until_idle(second, lambda _: None)
    counts = second.sides.tally.take()
    assert counts["loaded_tokens_host"] == 96
    assert second.done[0].request.all_token_ids == first.done[0].request.all_token_ids


def test_a_preempted_request_gets_its_own_blocks_back(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent()
    engine = TinyEngine(make_sides(agent, blocks=20))
    for name in ("a", "b", "c"):
        engine.add(name, [ord(name) * 100 + i for i in range(5 * BLOCK)], 4 * BLOCK)
    mover = engine.sides.worker._mover

    def each_step(_: int) -> None:
        assert soon(lambda: not mover._queued_blocks), "what is not saved yet is not found again"

    run_until_idle(engine, each_step)
    counts = engine.sides.tally.take()
    assert counts["loaded_tokens_host"] > 0
    assert check_all_that_is_kept(agent, engine) >= 3 * 8


def test_a_dead_agent_costs_no_request(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent()
    sides = make_sides(agent, deadline_s=0.2)
    engine = TinyEngine(sides)
    tokens = list(range(100))

    def each_step(number: int) -> None:
        if number == 5:
            agent.stop(retire=False)
        if number == 30:
            agent.retire_leftover()
            agent.start()
        if number % 10 == 0 and number < 100:
            engine.add(f"r{number}", tokens, 15)
        time.sleep(0.01 if number > 30 else 0.0)

    engine.add("first", tokens, 60)
    run_until_idle(engine, each_step)
    assert len(engine.done) == 11
    assert sides.faults.total == 0
    assert sides.tally.take()["loaded_tokens_host"] > 0  # hits came back
    assert check_all_that_is_kept(agent, engine) > 0


def test_memory_stand_in_reads_what_it_wrote() -> None:
    memory = Memory(4)
    memory.write(2, page_of([1]))
    assert memory.read(2) == page_of([1])
    assert memory.read(1) == bytes(PAGE)
