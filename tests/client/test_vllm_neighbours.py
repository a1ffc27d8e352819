"""Other connectors of the same engine: what they load may be wrong, and nobody tells us."""

from __future__ import annotations

from typing import Any

import pytest
from grouped_engine import GroupedEngine, Output
from vllm_stand_ins import BLOCK, Request, step_output

from onggi.connectors.vllm.metadata import Report, Told

pytestmark = pytest.mark.usefixtures("patient")

TOKENS = list(range(3000, 3000 + 4 * BLOCK + 3))
TABLE = [1, 2, 3, 4, 5]


def begun(sides: Any, name: str, *, local: int = 0, others: int = 0) -> Request:
    """A request of which the engine has `local` blocks and another connector promised more."""
    one = Request(name, list(TOKENS))
    sides.scheduler.arrived(one)
    assert sides.scheduler.matched(one, local * BLOCK) == (0, False)
    sides.scheduler.admitted(one, (), 0)
    one.num_computed_tokens = (local + others) * BLOCK
    return one


def saved(sides: Any, *requests: Request, sync: bool = False) -> list[str]:
    """Requests of which something is saved in a step that computes all of them."""
    scheduled = {one.request_id: one.num_tokens - one.num_computed_tokens for one in requests}
    tables = {one.request_id: TABLE for one in requests}
    plan = sides.scheduler.plan(step_output(scheduled, tables, sync=sync))
    return sorted(save.request_id for save in plan.saves)


def goes_on(one: Request) -> None:
    """Its step was good: it has another token."""
    one.num_computed_tokens = one.num_tokens
    one.all_token_ids.append(7)


def test_what_another_loads_within_a_step_is_saved_once_the_step_was_good(
    agent: Any, make_sides: Any
) -> None:
    sides = make_sides(agent)
    one = begun(sides, "a", others=2)
    assert saved(sides, one, sync=True) == []
    one.num_computed_tokens = 0  # it was not: the engine computes it again
    assert saved(sides, one) == []
    goes_on(one)
    assert saved(sides, one) == ["a"]
    sides.scheduler.finished(one)


def test_what_begins_with_doubted_blocks_waits_too_and_others_do_not(
    agent: Any, make_sides: Any
) -> None:
    sides = make_sides(agent)
    one, apart = begun(sides, "a", others=2), begun(sides, "b")
    assert saved(sides, one, apart, sync=True) == ["b"]
    behind = begun(sides, "c", local=2)
    assert saved(sides, behind) == []
    goes_on(one)
    goes_on(behind)
    later = begun(sides, "d", local=2)
    assert saved(sides, one, behind, later) == ["a", "c", "d"]


def test_what_came_before_its_step_is_not_doubted(agent: Any, make_sides: Any) -> None:
    """A load that a request waits for has ended when it is scheduled, well or not."""
    sides = make_sides(agent)
    assert saved(sides, begun(sides, "a", others=2)) == ["a"]


def test_a_request_that_ends_leaves_no_doubt(agent: Any, make_sides: Any) -> None:
    sides = make_sides(agent)
    one = begun(sides, "a", others=2)
    assert saved(sides, one, sync=True) == []
    sides.scheduler.finished(one)
    assert saved(sides, begun(sides, "b", local=2)) == ["b"]


def test_so_it_is_for_models_of_several_groups(agent: Any) -> None:
    engine = GroupedEngine(agent, blocks=40)
    one = Request("a", list(TOKENS))
    engine.scheduler.arrived(one)
    assert engine.scheduler.matched(one, 0) == (0, False)
    engine.scheduler.admitted(one, (), 0)
    one.num_computed_tokens = 2 * BLOCK
    tables = {"a": (TABLE, TABLE, TABLE)}
    output: Any = Output({"a": one.num_tokens - one.num_computed_tokens}, tables, set())
    output.has_sync_kv_loads = True
    assert engine.scheduler.plan(output).saves == []
    goes_on(one)
    output = Output({"a": 1}, tables, set())
    assert {save.request_id for save in engine.scheduler.plan(output).saves} == {"a"}
    engine.close()


def test_ranks_say_what_they_are_in_their_first_report(agent: Any, make_sides: Any) -> None:
    """For a scheduler that no handshake reached."""
    sides = make_sides(agent, ranks=2)
    told = [Told(unit=rank + 1) for rank in range(2)]
    for worker, one in zip(sides.workers, told, strict=True):
        worker.start(one)
    first = sides.workers[0].take_report().merged(sides.workers[1].take_report())
    assert first
    assert first.told == {0: told[0], 1: told[1]}
    assert sides.workers[0].take_report() == Report()
