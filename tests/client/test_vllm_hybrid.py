"""Both sides around a small engine with groups: whatever the order of things, no wrong byte is kept
or used, and no block of the engine is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import soon
from grouped_engine import KINDS, GroupedEngine, Output, group_page, spaces_of
from vllm_stand_ins import BLOCK, PAGE, Request

from onggi import Client, block_keys
from onggi.arena import Arena
from onggi.connectors.vllm.copier import HostCopier, Pair
from onggi.connectors.vllm.hybrid.tracked import Part
from onggi.connectors.vllm.layout import PageMap
from onggi.outcomes import NO_LOAD
from onggi_core.wire.frame import KEYS_MAX

SEEDS = range(24)


class Spoilt(HostCopier):
    """Copies late, and sometimes not at all."""

    def __init__(self, pages: PageMap) -> None:
        super().__init__(pages)
        self.rng = random.Random(0)
        self.slow = self.failing = 0.0

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


@pytest.fixture
def make_engine() -> Iterator[Any]:
    made: list[GroupedEngine] = []

    def make(agent: Any, **kwargs: Any) -> GroupedEngine:
        kwargs.setdefault("blocks", 120)
        made.append(GroupedEngine(agent, **kwargs))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def run(engine: GroupedEngine, each_step: Any = None, steps_max: int = 4000) -> None:
    for number in range(steps_max):
        if engine.idle:
            return
        if each_step is not None:
            each_step(number)
        engine.step()
        if not engine.running:
            time.sleep(0.001)
    raise AssertionError(f"still busy after {steps_max} steps")


def request(name: str, tokens: int, begin: int = 0, **kwargs: Any) -> Request:
    return Request(name, list(range(begin, begin + tokens)), **kwargs)


def kept(agent: Any, kind: int, keys: list[bytes], rank: int = 0) -> list[bytes | None]:
    """What the agent has under each of these keys."""
    client = Client(agent.socket_path, spaces=[spaces_of(rank)[kind]], deadline_s=30.0)
    pages: list[bytes | None] = []
    for key in keys:
        page = bytearray(PAGE * len(KINDS[kind].groups))
        pages.append(bytes(page) if client.load([key], [page], wait_s=30.0) else None)
    client.close()
    return pages


def check_all_that_is_kept(agent: Any, engine: GroupedEngine) -> int:
    """Every block the agent holds has the bytes of its tokens. Returns how many were looked at."""
    right: dict[bytes, list[int]] = {}
    for live in engine.done:
        tokens = live.request.all_token_ids
        for number, key in enumerate(block_keys(tokens, BLOCK)):
            right[key] = tokens[: (number + 1) * BLOCK]
    looked = 0
    for which, kind in enumerate(KINDS):
        for rank in range(len(engine.memories)):
            pages = kept(agent, which, list(right), rank)
            for tokens, page in zip(right.values(), pages, strict=True):
                if page is not None:
                    assert page == b"".join(group_page(tokens, g, rank) for g in kind.groups)
                    looked += 1
    return looked


def prompt(rng: random.Random, name: str) -> Request:
    """One of three families that share beginnings, sometimes under a salt."""
    family, length = rng.randrange(3), rng.randrange(1, 14 * BLOCK)
    return request(name, length, family * 1000, cache_salt=rng.choice([None, None, "s"]))


@pytest.mark.parametrize("seed", SEEDS)
def test_preemption_aborts_failures_and_late_copies(
    make_agent: Any, make_engine: Any, seed: int
) -> None:
    rng = random.Random(seed)
    agent = make_agent(extents=rng.choice([1, 3]), segments=rng.choice([0, 4]))
    engine: GroupedEngine = make_engine(
        agent, blocks=rng.choice([70, 120]), ranks=1 + seed % 2, copier=Spoilt
    )
    failing = rng.choice([0.0, 0.0, 0.2])
    for number, copier in enumerate(c for x in engine.copiers for kind in x for c in kind):
        copier.rng = random.Random(seed + number)
        copier.slow, copier.failing = rng.choice([0.0, 0.5, 1.0]), failing
    names = iter(range(100))

    def each_step(number: int) -> None:
        if number < 40 and rng.random() < 0.3:
            engine.add(prompt(rng, f"r{next(names)}"), rng.randrange(1, 24))
        everyone = [*engine.running, *engine.waiting, *engine.loading.values()]
        if everyone and rng.random() < 0.03:
            engine.abort(rng.choice(everyone).request.request_id)

    for _ in range(3):
        engine.add(prompt(rng, f"r{next(names)}"), rng.randrange(1, 24))
    run(engine, each_step)
    assert len(engine.pool.free) == len(engine.pool.blocks) - 1  # all but the one for nobody
    if not failing:
        assert engine.faults.total == 0
    assert soon(lambda: agent.stats()["open_loads"] == 0)
    check_all_that_is_kept(agent, engine)


def test_what_one_engine_computed_another_one_loads(make_agent: Any, make_engine: Any) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 10 * BLOCK), 4)
    run(first)
    assert check_all_that_is_kept(agent, first) >= 2 * 10
    second = make_engine(agent)
    second.add(request("b", 10 * BLOCK), 4)
    run(second)
    assert second.loaded_tokens == 9 * BLOCK  # the last token is in the tenth block
    counts = second.tally.take()
    assert counts["loaded_tokens_host"] == 9 * BLOCK
    assert counts["loaded_bytes"] == (9 + 2 * 3) * PAGE  # of the windows, the last three blocks
    assert second.done[0].request.all_token_ids == first.done[0].request.all_token_ids


def test_a_prefix_that_ends_elsewhere_takes_the_window_there(
    make_agent: Any, make_engine: Any
) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 12 * BLOCK), 1)
    run(first)
    second = make_engine(agent)
    fork = Request("b", [*range(7 * BLOCK), *range(900, 900 + 40)])
    second.add(fork, 3)
    run(second)
    assert second.loaded_tokens == 7 * BLOCK
    assert second.faults.total == 0


def test_without_its_window_a_hit_ends_before_the_hole(
    make_agent: Any, make_engine: Any, tmp_path: Path
) -> None:
    """The agent has all blocks of the one kind, and of the windows only an earlier run."""
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 10 * BLOCK), 1)
    run(first)
    keys = block_keys(list(range(10 * BLOCK)), BLOCK)
    (tmp_path / "other").mkdir()
    other = make_agent(tmp_path / "other")
    for which, upto in ((0, 10), (1, 6)):
        client = Client(other.socket_path, spaces=[spaces_of(0)[which]], deadline_s=30.0)
        pages = kept(agent, which, keys[:upto])
        assert client.store(keys[:upto], [page for page in pages if page]).stored == upto
        client.close()
    second = make_engine(other)
    assert second.scheduler.matched(request("b", 10 * BLOCK), 0) == (6 * BLOCK, True)
    assert second.scheduler.matched(request("c", 10 * BLOCK), 8 * BLOCK) == (0, False)


def test_a_local_hit_brings_its_window_along(make_agent: Any, make_engine: Any) -> None:
    """Of what the engine has itself nothing is loaded, in any kind."""
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 10 * BLOCK), 1)
    run(first)
    second = make_engine(agent)
    asked = request("b", 10 * BLOCK)
    assert second.scheduler.matched(asked, 8 * BLOCK) == (BLOCK, True)
    tables = [list(range(1, 11)), [0] * 6 + [21, 22, 23, 24], [0] * 6 + [31, 32, 33, 34]]
    second.scheduler.admitted(asked, tables, BLOCK)
    (job,) = second.scheduler.plan(empty_step()).loads
    assert (job.block_ids, job.kind) == (((9,),), 0)
    assert [(part.block_ids, part.kind) for part in job.also] == [(((23, 33),), 1)]


def empty_step() -> Any:
    return Output({}, {}, set())


def test_the_same_question_gets_the_same_answer_from_the_same_pins(
    make_agent: Any, make_engine: Any
) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 8 * BLOCK), 1)
    run(first)
    second = make_engine(agent)
    asked = request("b", 8 * BLOCK)
    assert {second.scheduler.matched(asked, 0) for _ in range(5)} == {(7 * BLOCK, True)}
    assert agent.stats()["open_loads"] == len(KINDS)
    second.scheduler.finished(asked)
    assert soon(lambda: agent.stats()["open_loads"] == 0)


def test_a_load_that_fails_is_computed_and_not_asked_for_again(
    make_agent: Any, make_engine: Any
) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 10 * BLOCK), 1)
    run(first)
    second = make_engine(agent, copier=Spoilt)
    for copier in second.copiers[0][1]:
        copier.failing = 1.0  # the windows' bytes do not come
    second.add(request("b", 10 * BLOCK), 1)
    run(second)
    assert (second.failed, second.loaded_tokens) == (1, 0)
    assert second.tally.take()["failed_load_blocks"] > 0
    assert second.done[0].request.all_token_ids == first.done[0].request.all_token_ids


def test_an_agent_that_dies_costs_no_request(make_agent: Any, make_engine: Any) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 10 * BLOCK), 1)
    run(first)
    second = make_engine(agent)
    second.add(request("b", 10 * BLOCK), 6)
    second.add(request("c", 10 * BLOCK), 6)
    second.step()
    agent.__exit__()
    run(second)
    assert [len(x.request.all_token_ids) for x in second.done] == [10 * BLOCK + 6] * 2


def test_a_reset_forgets_what_was_stored(make_agent: Any, make_engine: Any) -> None:
    engine = make_engine(make_agent())
    engine.add(request("a", 10 * BLOCK), 1)
    run(engine)
    engine.scheduler.reset()
    engine.add(request("b", 10 * BLOCK), 1)
    run(engine)
    assert engine.loaded_tokens == 0
    engine.add(request("c", 10 * BLOCK), 1)
    run(engine)
    assert engine.loaded_tokens == 9 * BLOCK  # stored since


def test_prompt_logprobs_and_streams_are_left_alone(make_agent: Any, make_engine: Any) -> None:
    engine = make_engine(make_agent())
    engine.add(request("a", 10 * BLOCK), 1)
    run(engine)
    assert engine.scheduler.matched(
        request("b", 10 * BLOCK, skip_reading_prefix_cache=True), 0
    ) == (0, False)
    assert engine.scheduler.matched(request("c", 10 * BLOCK, resumable=True), 0) == (0, False)


def test_a_block_is_pinned_until_all_ranks_have_read_it(make_agent: Any, make_engine: Any) -> None:
    engine = make_engine(make_agent(), ranks=2, copier=Spoilt)
    engine.add(request("a", 6 * BLOCK), 1)
    engine.step()
    assert not engine.running  # it has ended
    assert engine.scheduler.holds_blocks or len(engine.pool.free) == 119
    run(engine)
    assert len(engine.pool.free) == 119


def test_blocks_that_leave_a_window_are_stored_all_the_same(
    make_agent: Any, make_engine: Any
) -> None:
    """A chunk of a prompt is longer than the window: its first blocks are given up in the next
    step, while their save has not begun."""
    agent = make_agent()
    engine = make_engine(agent, copier=Spoilt)
    for copier in engine.copiers[0][1]:
        copier.slow = 1.0
    engine.add(request("a", 12 * BLOCK), 1)
    run(engine)
    assert None not in kept(agent, 1, block_keys(list(range(12 * BLOCK)), BLOCK))
    check_all_that_is_kept(agent, engine)


def test_a_promise_taken_up_in_part_fails_whole(make_agent: Any, make_engine: Any) -> None:
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 8 * BLOCK), 1)
    run(first)
    second = make_engine(agent)
    asked = request("b", 8 * BLOCK)
    assert second.scheduler.matched(asked, 0) == (7 * BLOCK, True)
    with pytest.raises(ValueError, match="of 112 tokens were taken"):
        second.scheduler.admitted(asked, [[], [], []], 2 * BLOCK)
    second.scheduler.broken(asked, [[], [], []])
    worker = second.workers[0]
    plan = second.scheduler.plan(empty_step())
    worker.load(plan)
    worker.after_forward(plan)
    assert soon(lambda: "b" in worker.finished()[1])
    assert worker.take_failed() == {"b"}
    assert soon(lambda: agent.stats()["open_loads"] == 0)


def test_of_a_prompt_of_millions_of_tokens_the_beginning_is_promised(
    agent: Any, make_engine: Any
) -> None:
    first, engine = make_engine(agent), make_engine(agent)
    short = request("short", 8 * BLOCK + 1)
    first.add(short, 1)
    run(first)
    long = request("long", (KEYS_MAX + 9) * BLOCK)
    engine.scheduler.arrived(long)
    assert engine.scheduler.matched(long, 0) == (8 * BLOCK, True)


def test_where_drafts_look_ahead_the_end_of_a_hit_is_computed(
    make_agent: Any, make_engine: Any
) -> None:
    """Also of what the engine has itself: it has left out a block already."""
    agent = make_agent()
    first = make_engine(agent)
    first.add(request("a", 8 * BLOCK + 1), 1)
    run(first)
    second = make_engine(agent, looks_ahead=True)
    asked = request("b", 8 * BLOCK + 1)
    assert second.scheduler.matched(asked, 0) == (7 * BLOCK, True)
    assert second.scheduler.matched(asked, 5 * BLOCK) == (2 * BLOCK, True)
    assert second.scheduler.matched(asked, 7 * BLOCK) == (0, False)
    second.add(request("c", 8 * BLOCK + 1), 2)
    run(second)
    assert second.loaded_tokens == 7 * BLOCK


def test_a_part_of_which_nothing_came_is_held_by_nobody() -> None:
    """It may come so between two looks at a promise."""
    part = Part(0, 0, [bytes(16)], client=object(), pending=object(), load=NO_LOAD)  # type: ignore[arg-type]
    assert part.poll() is False
    assert part.held is False
