"""Promises that are not made: dearer than computing, late, or asked for a moment ago."""

from __future__ import annotations

import time
from typing import Any

import pytest
from engine_harness import soon
from vllm_stand_ins import BLOCK, PAGE, SPACE, Request, step_output

from onggi import Client, block_keys
from onggi.connectors.vllm.scheduler import ANSWER_KEPT_S, MISS_KEPT_S
from onggi.connectors.vllm.worth import Tier
from onggi_core.wire.frame import Op

TOKENS = list(range(3000, 3000 + 8 * BLOCK))


def request(name: str = "r") -> Request:
    return Request(name, [*TOKENS, 1])


def ask(sides: Any, one: Request) -> tuple[int | None, bool]:
    sides.scheduler.arrived(one)
    answer: tuple[int | None, bool] = sides.scheduler.matched(one, 0)
    return answer


def on_disk_alone(agent: Any) -> None:
    """The prompt's blocks, pushed out of a host tier of one extent."""
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    assert client.store(block_keys(TOKENS, BLOCK), [bytes(PAGE)] * 8).stored == 8
    assert soon(lambda: len(agent.disk) == 8)
    keys = block_keys([7] * 256 * BLOCK, BLOCK)
    assert client.store(keys, [bytes(PAGE)] * 256).stored == 256
    client.close()


def teach(sides: Any, token_s: float, host_s: float, disk_s: float) -> None:
    worth = sides.scheduler._judge.worth
    for number in range(20):
        worth.computed(256 + number, (256 + number) * token_s)
        worth.loaded(Tier.HOST, 8 + number % 3, (8 + number % 3) * host_s)
        worth.loaded(Tier.DISK, 8 + number % 3, (8 + number % 3) * disk_s)


def test_a_disk_that_is_dearer_than_computing_is_declined_and_counted(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent(extents=1, segments=8)
    on_disk_alone(agent)
    sides = make_sides(agent)
    agent.reads.clear()
    teach(sides, 1e-4, 1e-5, 1e-1)
    assert ask(sides, request("tried")) == (8 * BLOCK, True)  # to measure it again
    sides.scheduler.finished(request("tried"))
    assert ask(sides, request("declined")) == (0, False)
    assert sides.tally.take()["declined_tokens"] == 8 * BLOCK
    agent.reads.set()


def test_told_to_always_load_it_does(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    on_disk_alone(agent)
    sides = make_sides(agent, weigh=False)
    agent.reads.clear()
    assert sides.scheduler._judge.worth is None
    assert ask(sides, request()) == (8 * BLOCK, True)
    agent.reads.set()


def test_loads_and_steps_are_measured_where_they_happen(make_agent: Any, make_sides: Any) -> None:
    from tiny_engine import TinyEngine, run_until_idle

    agent = make_agent()
    engine = TinyEngine(make_sides(agent))
    for number in range(4):
        tokens = [number % 2 * 10_000 + i for i in range(8 * BLOCK)]
        engine.add(f"r{number}", tokens, 4)
        run_until_idle(engine, lambda _: time.sleep(0.001))
    worth = engine.sides.scheduler._judge.worth
    assert worth is not None
    assert (worth._steps.samples, worth._steps.amount) == (2, 2 * 8 * BLOCK)  # the two misses
    host = worth._loads[Tier.HOST]
    assert (host.samples, host.amount) == (2, 2 * 7)
    assert worth._steps.seconds(128) > 0
    assert host.seconds(7) > 0


def test_a_disk_that_keeps_being_late_is_not_waited_for(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent(extents=1, segments=8)
    on_disk_alone(agent)
    sides = make_sides(agent, disk_wait_s=0.1)
    agent.reads.clear()
    for number in range(3):
        one = request(f"late{number}")
        assert ask(sides, one) == (8 * BLOCK, True)
        assert soon(lambda one=one: sides.scheduler.matched(one, 0) == (0, False))
        sides.scheduler._failures.forget(block_keys(TOKENS, BLOCK))  # another prompt, say
        sides.scheduler.finished(one)
    assert ask(sides, request("not waited for")) == (0, False)
    counts = sides.tally.take()
    assert counts["late_loads"] == 3
    assert counts["unawaited_tokens"] == 8 * BLOCK
    agent.reads.set()


def test_a_request_that_found_nothing_is_not_asked_about_in_every_step(
    agent: Any, make_sides: Any
) -> None:
    now = [time.monotonic()]
    sides, one = make_sides(agent, clock=lambda: now[0]), request()
    assert ask(sides, one) == (0, False)
    asked = len(agent.ops)
    for _ in range(100):
        assert sides.scheduler.matched(one, 0) == (0, False)
    assert len(agent.ops) == asked
    now[0] += MISS_KEPT_S
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    assert client.store(block_keys(TOKENS, BLOCK), [bytes(PAGE)] * 8).stored == 8
    client.close()
    assert sides.scheduler.matched(one, 0) == (8 * BLOCK, False)  # it came while it queued


def test_a_request_that_queued_for_long_finds_what_was_stored_meanwhile(
    agent: Any, make_sides: Any
) -> None:
    queued_s = [0.0]
    sides, one = make_sides(agent, clock=lambda: time.monotonic() + queued_s[0]), request()
    sides.scheduler.arrived(one)
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    assert soon(lambda: Op.PREFETCH in agent.ops)
    assert client.store(block_keys(TOKENS, BLOCK), [bytes(PAGE)] * 8).stored == 8
    client.close()
    queued_s[0] = ANSWER_KEPT_S
    assert sides.scheduler.matched(one, 0) == (8 * BLOCK, False)


def test_a_miss_costs_one_question(agent: Any, make_sides: Any) -> None:
    sides, one = make_sides(agent), request()
    sides.scheduler.arrived(one)
    assert sides.scheduler.matched(one, 0) == (0, False)
    sides.scheduler.admitted(one, [list(range(9))], 0)
    assert [op for op in agent.ops if op != Op.HELLO] == [Op.PREFETCH]


@pytest.mark.parametrize("answered", [True, False])
def test_an_engine_without_requests_goes_on_until_the_pin_is_back_or_the_wait_over(
    make_agent: Any, make_sides: Any, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an abort would leave its prompt pinned until the lease ends, or a hung agent keep the
    engine busy."""
    agent = make_agent(extents=1, segments=8)
    on_disk_alone(agent)
    sides, one = make_sides(agent), request()
    agent.reads.clear()
    assert ask(sides, one) == (8 * BLOCK, True)
    assert not sides.scheduler.owed  # it is still wanted
    assert not sides.scheduler.finished(one)
    assert sides.scheduler.owed
    if answered:
        agent.reads.set()
        while sides.scheduler.owed:  # vLLM makes steps while a connector has pending work
            sides.scheduler.plan(step_output({}, {}))
        assert soon(lambda: agent.stats()["open_loads"] == 0)
    else:
        later_s = time.monotonic() + 60.0
        monkeypatch.setattr(sides.scheduler._client._link, "now_s", lambda: later_s)
        assert not sides.scheduler.owed
        agent.reads.set()
