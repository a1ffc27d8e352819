"""Several ranks and several engines on one agent."""

from __future__ import annotations

import time
from typing import Any

import pytest
from engine_harness import soon
from tiny_engine import TinyEngine, run_until_idle
from vllm_stand_ins import BLOCK, PAGE, SPACES, Request, page_of, step_output

from onggi import Client, SpaceSpec, StoreOutcome, block_keys

TOKENS = list(range(2000, 2000 + 6 * BLOCK))
KEYS = block_keys(TOKENS, BLOCK)


def store(agent: Any, space: SpaceSpec, blocks: list[int], rank: int = 0) -> None:
    client = Client(agent.socket_path, spaces=[space], deadline_s=30.0)
    for number in blocks:
        parent = KEYS[number - 1] if number else bytes(16)
        page = page_of(TOKENS[: (number + 1) * BLOCK], rank)
        assert client.store([KEYS[number]], [page], parent=parent).refused == 0
    client.close()


def promised(sides: Any, name: str = "r") -> tuple[int | None, bool]:
    one = Request(name, [*TOKENS, 1])
    sides.scheduler.arrived(one)
    answer: tuple[int | None, bool] = sides.scheduler.matched(one, 0)
    return answer


@pytest.mark.parametrize(
    ("first", "second", "blocks"),
    [
        (range(6), range(6), 6),
        (range(6), range(0), 0),
        (range(6), range(3), 3),
        (range(2), range(6), 2),
        (range(6), [0, 1, 3, 4, 5], 2),
        ([0, 1, 2, 4], [0, 1, 2, 3], 3),
    ],
)
def test_a_block_is_a_hit_when_all_ranks_have_it(
    agent: Any, make_sides: Any, first: Any, second: Any, blocks: int
) -> None:
    store(agent, SPACES[0], list(first), 0)
    store(agent, SPACES[1], list(second), 1)
    assert promised(make_sides(agent, ranks=2)) == (blocks * BLOCK, False)


def test_a_rank_whose_store_is_still_open_holds_the_promise_back_until_it_is_sealed(
    agent: Any, make_sides: Any
) -> None:
    store(agent, SPACES[0], list(range(6)), 0)
    late = Client(agent.socket_path, spaces=[SPACES[1]], deadline_s=30.0)
    ticket = late.store_prepare(KEYS)
    sides, one = make_sides(agent, ranks=2), Request("r", [*TOKENS, 1])
    sides.scheduler.arrived(one)
    assert sides.scheduler.matched(one, 0) == (6 * BLOCK, True)  # on its way: no pin, no bytes yet
    pages = [page_of(TOKENS[: (n + 1) * BLOCK], 1) for n in range(6)]
    assert late.copy_in(ticket.pages(), pages)
    assert late.finish_store(ticket, StoreOutcome.SEALED) == 6
    assert soon(lambda: sides.scheduler.matched(one, 0) == (6 * BLOCK, False))
    late.close()


def test_a_rank_whose_store_comes_too_late_leaves_a_miss(agent: Any, make_sides: Any) -> None:
    store(agent, SPACES[0], list(range(6)), 0)
    late = Client(agent.socket_path, spaces=[SPACES[1]], deadline_s=30.0)
    assert late.store_prepare(KEYS).granted
    sides, one = make_sides(agent, ranks=2, disk_wait_s=0.05), Request("r", [*TOKENS, 1])
    sides.scheduler.arrived(one)
    assert sides.scheduler.matched(one, 0) == (6 * BLOCK, True)
    assert soon(lambda: sides.scheduler.matched(one, 0) == (0, False))
    late.close()


def test_a_rank_that_dies_in_its_store_leaves_a_miss(agent: Any, make_sides: Any) -> None:
    store(agent, SPACES[0], list(range(6)), 0)
    dying = Client(agent.socket_path, spaces=[SPACES[1]], deadline_s=30.0)
    assert dying.store_prepare(KEYS).granted
    dying.close()
    assert promised(make_sides(agent, ranks=2)) == (0, False)


def test_a_rank_whose_load_fails_has_both_compute(agent: Any, make_sides: Any) -> None:
    """One rank's bytes are right and the other's are not: the request goes on from the first block
    that a rank lacks, and neither keeps what was computed on it."""
    for rank in range(2):
        store(agent, SPACES[rank], list(range(6)), rank)
    sides = make_sides(agent, ranks=2)
    one = Request("r", [*TOKENS, 1])
    sides.scheduler.arrived(one)
    sides.scheduler.matched(one, 0)
    sides.scheduler.admitted(one, [list(range(7))], 6 * BLOCK)
    plan = sides.scheduler.plan(step_output({"r": 1}, {"r": list(range(7))}))
    sides.copiers[1].load = lambda *_: 1 / 0
    reports, errors = [], set()
    for worker in sides.workers:
        worker.load(plan)
        worker.after_forward(plan)
        errors |= worker.take_errors()
        reports.append(worker.take_report())
    assert errors == set(range(6))
    assert plan.saves == []
    sides.scheduler.reported(reports[0].merged(reports[1]), ())
    assert promised(sides, "next") == (0, False)  # remembered as failed for a while
    counts = sides.tally.take()
    assert counts.get("loaded_tokens_host", 0) == 0


def test_engines_of_one_fingerprint_share_and_of_two_never_meet(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent()
    engines = [TinyEngine(make_sides(agent)) for _ in range(2)]
    stranger = make_sides(agent, spaces=[SpaceSpec(b"s" * 16, PAGE, BLOCK)])
    for engine in engines:
        engine.add("a", TOKENS, 2 * BLOCK)
        run_until_idle(engine, lambda _: time.sleep(0.001))
    first, second = (engine.sides.tally.take() for engine in engines)
    assert first.get("loaded_tokens_host", 0) == 0
    assert second["loaded_tokens_host"] == 5 * BLOCK
    assert promised(stranger) == (0, False)
    one = TinyEngine(stranger)
    one.add("a", TOKENS, 2 * BLOCK)
    run_until_idle(one, lambda _: time.sleep(0.001))
    counts = stranger.tally.take()
    assert counts.get("loaded_tokens_host", 0) == 0
    assert counts["saved_blocks"] > 0
    assert counts.get("existing_blocks", 0) == 0  # what the others stored is not there for it


def test_engines_at_once_on_one_agent_keep_and_load_only_right_bytes(
    make_agent: Any, make_sides: Any
) -> None:
    """TinyEngine looks at every block before each forward pass."""
    agent = make_agent(extents=1)
    engines = [TinyEngine(make_sides(agent, blocks=24, ranks=2)) for _ in range(3)]
    for number in range(40):
        for engine in engines:
            if number % 4 == 0:
                engine.add(f"r{number}", TOKENS[: (1 + number % 6) * BLOCK + 3], 20)
            engine.step()
    for engine in engines:
        run_until_idle(engine, lambda _: None)
        assert engine.sides.faults.total == 0
    assert sum(e.sides.tally.take().get("loaded_tokens_host", 0) for e in engines) > 0
