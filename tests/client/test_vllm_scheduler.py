"""The scheduler side: what it promises, what it gives back."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from engine_harness import soon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm_stand_ins import BLOCK, PAGE, SPACE, Request, step_output

from onggi import Client, block_keys
from onggi.connectors.vllm.metadata import Report
from onggi_core.wire.frame import KEYS_MAX

TOKENS = list(range(1000, 1000 + 64 * BLOCK))


def store(agent: Any, tokens: list[int], blocks: list[int]) -> None:
    """Keep these blocks of a prompt, by number."""
    keys = block_keys(tokens, BLOCK)
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    for number in blocks:
        parent = keys[number - 1] if number else bytes(16)
        assert client.store([keys[number]], [bytes(PAGE)], parent=parent).refused == 0
    client.close()


def request(length: int, name: str = "r", **kwargs: Any) -> Request:
    return Request(name, TOKENS[:length], **kwargs)


def ask(sides: Any, one: Request, computed: int) -> tuple[int, bool]:
    sides.scheduler.arrived(one)
    answer: tuple[int, bool] = sides.scheduler.matched(one, computed)
    return answer


@pytest.mark.parametrize(
    ("length", "computed", "promised"),
    [
        (33, 0, 32),
        (33, 16, 16),
        (33, 32, 0),
        (32, 0, 16),
        (32, 16, 0),
        (48, 0, 32),
        (31, 0, 16),
        (17, 0, 16),
        (16, 0, 0),
        (15, 0, 0),
        (1, 0, 0),
        (0, 0, 0),
    ],
)
def test_the_last_token_is_never_promised(
    agent: Any, make_sides: Any, length: int, computed: int, promised: int
) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    assert ask(make_sides(agent), request(length), computed) == (promised, False)


def test_of_a_prompt_of_millions_of_tokens_the_beginning_is_promised(
    agent: Any, make_sides: Any
) -> None:
    tokens = [*TOKENS[:64], *range(KEYS_MAX * BLOCK)]
    store(agent, tokens, [0, 1, 2, 3])
    sides = make_sides(agent)
    assert ask(sides, Request("r", tokens), 0) == (64, False)
    assert ask(sides, Request("s", tokens), KEYS_MAX * BLOCK) == (0, False)


def test_only_the_first_block_is_there(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0])
    assert ask(make_sides(agent), request(48), 0) == (16, False)


def test_a_hole_ends_the_promise(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 2])
    assert ask(make_sides(agent), request(64), 0) == (16, False)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    length=st.integers(0, 12 * BLOCK),
    local=st.integers(0, 12),
    there=st.sets(st.integers(0, 11)),
)
def test_promises_are_whole_blocks_that_follow_the_local_ones(
    make_agent: Any, tmp_path_factory: Any, length: int, local: int, there: set[int]
) -> None:
    from vllm_stand_ins import Sides

    agent = make_agent(tmp_path_factory.mktemp("agent"), extents=1)
    store(agent, TOKENS[: 12 * BLOCK], sorted(there))
    sides = Sides(agent)
    one = request(length)
    computed = min(local, length // BLOCK) * BLOCK
    promised, waits = ask(sides, one, computed)
    assert not waits
    assert promised % BLOCK == 0
    assert promised >= 0
    assert promised == 0 or computed + promised <= length - 1
    run = next((n for n in range(12) if n not in there), 12)
    assert computed + promised <= max(computed, run * BLOCK)
    assert sides.scheduler.matched(one, computed) == (promised, False)
    sides.close()
    agent.stop()


def test_asked_twice_it_answers_the_same_from_one_pin(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    assert ask(sides, one, 0) == (48, False)
    for _ in range(20):
        assert sides.scheduler.matched(one, 0) == (48, False)
    assert agent.stats()["open_loads"] == 1
    assert sides.scheduler.matched(one, 16) == (32, False)  # another question, another pin
    assert agent.stats()["open_loads"] == 1


@pytest.mark.parametrize("end", ["finished", "alloc"])
def test_a_promise_not_taken_up_is_given_back(agent: Any, make_sides: Any, end: str) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    ask(sides, one, 0)
    if end == "finished":
        assert not sides.scheduler.finished(one)
    else:
        sides.scheduler.admitted(one, [[7, 8, 9, 10]], 0)
    assert soon(lambda: agent.stats()["open_loads"] == 0)


def test_requests_that_must_not_read_are_not_promised_anything(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides = make_sides(agent)
    assert ask(sides, request(60, skip_reading_prefix_cache=True), 0) == (0, False)
    assert ask(sides, request(60, "s", resumable=True), 0) == (0, False)
    gone = SimpleNamespace(lora_int_id=1, lora_name="t", lora_path="/nowhere", load_inplace=False)
    assert ask(sides, request(60, "l", lora_request=gone), 0) == (0, False)
    assert agent.stats()["open_loads"] == 0


def test_a_load_goes_to_the_workers_once_and_its_report_frees_the_pin(
    agent: Any, make_sides: Any
) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7, 8]], 48)
    plan = sides.scheduler.plan(step_output({"r": 12}, {"r": [5, 6, 7, 8]}))
    (job,) = plan.loads
    assert (job.request_id, job.block_ids, job.asynchronous) == ("r", (5, 6, 7), False)
    assert len(job.rows[0].offsets) == 3
    assert not sides.scheduler.plan(step_output({}, {})).loads
    sides.scheduler.reported(Report(loaded={job.number: (3, 1)}), [])
    assert soon(lambda: agent.stats()["hit_host_blocks"] == 3)
    assert agent.stats()["open_loads"] == 0
    assert sides.scheduler.sources(one, 48) == (48, 0)


def test_a_failed_block_is_not_promised_again_for_a_while(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    now = [time.monotonic()]
    sides = make_sides(agent, clock=lambda: now[0])
    one = request(60)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7, 8]], 48)
    (job,) = sides.scheduler.plan(step_output({}, {})).loads
    sides.scheduler.reported(Report(loaded={job.number: (1, 1)}), [])
    assert ask(sides, request(60, "again"), 0) == (16, False)
    now[0] += 11.0
    assert ask(sides, request(60, "later"), 0) == (48, False)


@pytest.mark.parametrize("ended", [False, True])
def test_a_failed_block_that_was_saved_anew_is_promised_at_once(
    agent: Any, make_sides: Any, ended: bool
) -> None:
    """Also if its request ended before its save did."""
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7, 8]], 48)
    (job,) = sides.scheduler.plan(step_output({}, {})).loads
    sides.scheduler.reported(Report(loaded={job.number: (1, 1)}), [])
    one.num_computed_tokens = 16
    (save,) = sides.scheduler.plan(step_output({"r": 44}, {"r": [5, 6, 7, 8]})).saves
    assert save.block_ids == (6, 7)
    assert not ended or sides.scheduler.finished(one)
    sides.scheduler.reported(Report(saves_over={save.number: 1}), [])
    assert ask(sides, request(60, "again"), 0) == (48, False)


def test_with_two_ranks_the_pin_goes_when_both_have_spoken(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides = make_sides(agent)
    sides.scheduler._loads._ranks = 2
    one = request(60)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7, 8]], 48)
    (job,) = sides.scheduler.plan(step_output({}, {})).loads
    sides.scheduler.reported(Report(loaded={job.number: (3, 1)}), [])
    assert agent.stats()["open_loads"] == 1
    sides.scheduler.reported(Report(loaded={job.number: (2, 1)}), [])
    assert soon(lambda: agent.stats()["hit_host_blocks"] == 2)
    assert ask(sides, request(60, "again"), 0) == (32, False)


def test_blocks_are_saved_once_they_are_full_and_their_tokens_known(
    agent: Any, make_sides: Any
) -> None:
    sides, one = make_sides(agent), request(40)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7]], 0)
    tables = {"r": [5, 6, 7]}
    (save,) = sides.scheduler.plan(step_output({"r": 20}, tables)).saves
    assert save.block_ids == (5,)
    one.num_computed_tokens = 20
    (save,) = sides.scheduler.plan(step_output({"r": 20}, tables)).saves
    assert save.block_ids == (6,)
    one.num_computed_tokens = 40
    # The engine plans ahead of its own output: the tokens of the next block are not known yet.
    assert not sides.scheduler.plan(step_output({"r": 8}, tables)).saves
    one.all_token_ids = TOKENS[:48]
    one.num_computed_tokens = 47
    (save,) = sides.scheduler.plan(step_output({"r": 1}, tables)).saves
    assert save.block_ids == (7,)
    assert save.parent == block_keys(TOKENS[:48], BLOCK)[1]


def test_what_the_agent_has_is_not_saved_again(agent: Any, make_sides: Any) -> None:
    store(agent, TOKENS[:64], [0, 1])
    sides, one = make_sides(agent), request(64)
    assert ask(sides, one, 0) == (32, False)
    sides.scheduler.admitted(one, [[1, 2, 3, 4]], 32)
    one.num_computed_tokens = 32
    plan = sides.scheduler.plan(step_output({"r": 32}, {"r": [1, 2, 3, 4]}))
    assert plan.saves[0].block_ids == (3, 4)


def test_a_request_that_ends_while_it_is_saved_keeps_its_blocks(
    agent: Any, make_sides: Any
) -> None:
    sides, one = make_sides(agent), request(32)
    ask(sides, one, 0)
    plan = sides.scheduler.plan(step_output({"r": 32}, {"r": [1, 2]}))
    assert sides.scheduler.finished(one)
    assert sides.scheduler.plan(step_output({}, {})).delayed == {"r"}
    assert plan.saves[0].number == 1


def test_a_request_whose_saves_are_over_is_not_delayed(agent: Any, make_sides: Any) -> None:
    sides, one = make_sides(agent), request(32)
    ask(sides, one, 0)
    (save,) = sides.scheduler.plan(step_output({"r": 32}, {"r": [1, 2]})).saves
    sides.scheduler.reported(Report(saves_over={save.number: 1}), [])
    assert not sides.scheduler.finished(one)


def test_saves_of_a_preempted_request_are_fenced(agent: Any, make_sides: Any) -> None:
    sides, one = make_sides(agent), request(32)
    ask(sides, one, 0)
    (save,) = sides.scheduler.plan(step_output({"r": 32}, {"r": [1, 2]})).saves
    plan = sides.scheduler.plan(step_output({}, {}, {"r"}))
    assert plan.fenced == {save.number}
    assert not sides.scheduler.finished(one)


def test_without_an_agent_nothing_is_promised_and_saving_waits(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent()
    sides = make_sides(agent, deadline_s=0.2)
    agent.stop()
    one = request(32)
    assert ask(sides, one, 0) == (0, False)
    assert not sides.scheduler.plan(step_output({"r": 32}, {"r": [1, 2]})).saves
    agent.start()
    one.num_computed_tokens, one.all_token_ids = 32, TOKENS[:33]

    def saved() -> bool:
        saves = sides.scheduler.plan(step_output({"r": 1}, {"r": [1, 2, 3]})).saves
        return [s.block_ids for s in saves] == [(1, 2)]

    assert soon(saved)


def test_an_asynchronous_load_is_promised_then_sent_when_it_has_come(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent(extents=1, segments=8)
    store(agent, TOKENS[:128], list(range(8)))
    crowd_out(agent)
    sides, one = make_sides(agent), request(128)
    agent.reads.clear()
    assert ask(sides, one, 0) == (112, True)
    assert sides.scheduler.matched(one, 0) == (112, True)
    sides.scheduler.admitted(one, [list(range(8))], 112)
    assert not sides.scheduler.plan(step_output({}, {})).loads
    agent.reads.set()
    jobs: list[Any] = []

    def came() -> bool:
        jobs.extend(sides.scheduler.plan(step_output({}, {})).loads)
        return bool(jobs)

    assert soon(came)
    assert (jobs[0].asynchronous, len(jobs[0].rows[0].offsets)) == (True, 7)
    sides.scheduler.reported(Report(loaded={jobs[0].number: (7, 1)}), ["r"])
    assert soon(lambda: agent.stats()["hit_disk_blocks"] == 7)
    sides.scheduler.admitted(one, [list(range(8))], 0)  # vLLM's second call
    assert agent.stats()["open_loads"] == 0


def test_blocks_that_came_from_disk_while_the_request_queued_need_no_wait(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent(extents=1, segments=8)
    store(agent, TOKENS[:128], list(range(8)))
    crowd_out(agent)
    sides, one = make_sides(agent), request(128)
    agent.reads.clear()
    assert ask(sides, one, 0) == (112, True)
    agent.reads.set()
    assert soon(lambda: sides.scheduler.matched(one, 0) == (112, False))
    assert sides.scheduler.matched(one, 0) == (112, False)
    assert agent.stats()["open_loads"] == 1
    sides.scheduler.admitted(one, [list(range(8))], 112)
    assert sides.scheduler.sources(one, 112) == (0, 112)
    (job,) = sides.scheduler.plan(step_output({"r": 16}, {"r": list(range(8))})).loads
    assert (job.asynchronous, len(job.rows[0].offsets)) == (False, 7)


def test_blocks_that_did_not_come_are_not_waited_for_again(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent(extents=1, segments=8)
    store(agent, TOKENS[:128], list(range(8)))
    crowd_out(agent)
    for place in agent.disk:
        agent.disk[place] = bytes(PAGE - 1) + b"!"
    sides, one = make_sides(agent), request(128)
    agent.reads.clear()
    assert ask(sides, one, 0) == (112, True)
    agent.reads.set()
    assert soon(lambda: sides.scheduler.matched(one, 0) == (0, False))
    assert soon(lambda: agent.stats()["open_loads"] == 0)


def test_a_request_that_ends_while_its_load_comes_is_reported_without_one(
    make_agent: Any, make_sides: Any
) -> None:
    agent = make_agent(extents=1, segments=8)
    store(agent, TOKENS[:128], list(range(8)))
    crowd_out(agent)
    sides, one = make_sides(agent), request(128)
    agent.reads.clear()
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [list(range(8))], 112)
    assert not sides.scheduler.finished(one)
    (job,) = sides.scheduler.plan(step_output({}, {})).loads
    assert (job.asynchronous, job.wanted) == (True, False)
    assert not sides.scheduler.plan(step_output({}, {})).loads
    sides.scheduler.reported(Report(), ["r"])
    agent.reads.set()
    while sides.scheduler.owed:
        sides.scheduler.plan(step_output({}, {}))  # the next step takes in the late reply
    assert soon(lambda: agent.stats()["open_loads"] == 0)


def test_after_a_reset_nothing_old_is_found_and_nothing_running_is_kept(
    agent: Any, make_sides: Any
) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    assert ask(sides, one, 0) == (48, False)
    sides.scheduler.reset()
    assert sides.scheduler.matched(one, 0) == (0, False)
    assert ask(sides, request(60, "new"), 0) == (0, False)


def test_a_fault_while_planning_still_sends_the_loads(
    agent: Any, make_sides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promised load that is neither made nor reported would be read as garbage."""
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    ask(sides, one, 0)
    sides.scheduler.admitted(one, [[5, 6, 7, 8]], 48)
    monkeypatch.setattr(sides.scheduler._saves, "plan", lambda *_: 1 / 0)
    plan = sides.scheduler.plan(step_output({"r": 12}, {"r": [5, 6, 7, 8]}))
    assert [job.block_ids for job in plan.loads] == [(5, 6, 7)]
    assert plan.fence_all
    assert sides.faults.by_hook == {"plan": 1}


def test_a_promise_that_cannot_be_taken_up_is_reported_as_failed(
    agent: Any, make_sides: Any
) -> None:
    store(agent, TOKENS[:64], [0, 1, 2, 3])
    sides, one = make_sides(agent), request(60)
    ask(sides, one, 0)
    sides.scheduler.broken(one, [[5, 6, 7, 8]])
    plan = sides.scheduler.plan(step_output({}, {}))
    sides.worker.load(plan)
    assert sides.worker.take_errors() == {5, 6, 7, 8}
    assert not sides.scheduler.plan(step_output({}, {})).loads


def crowd_out(agent: Any) -> None:
    """Fill a one-extent host tier with something else, once the disk has what was there."""
    assert soon(lambda: len(agent.disk) == 8)
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    keys = block_keys([7] * 256 * BLOCK, BLOCK)
    assert client.store(keys, [bytes(PAGE)] * 256).stored == 256
    client.close()
