"""An agent that was restarted: what is promised of it is read, and what is lost is not promised."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from engine_harness import soon
from grouped_engine import KINDS, GroupedEngine, group_page, spaces_of
from vllm_stand_ins import BLOCK, SPACE, Request, page_of, step_output

from onggi import Client, block_keys

pytestmark = pytest.mark.usefixtures("patient")

TOKENS = list(range(700, 700 + 4 * BLOCK))
KEYS = block_keys(TOKENS, BLOCK)


def stored(agent: Any, page: Any = page_of, space: Any = SPACE) -> None:
    """The prompt's blocks, by another engine."""
    other = Client(agent.socket_path, spaces=[space], deadline_s=5.0)
    pages = [page(TOKENS[: (n + 1) * BLOCK]) for n in range(4)]
    assert other.store(KEYS, pages).stored == 4
    other.close()


def stored_of_each_kind(agent: Any) -> None:
    for kind, space in zip(KINDS, spaces_of(0), strict=True):
        stored(agent, partial(page_of_kind, kind.groups), space)


def page_of_kind(groups: tuple[int, ...], tokens: list[int]) -> bytes:
    return b"".join(group_page(tokens, group, 0) for group in groups)


@pytest.mark.parametrize("noticed", [False, True])
def test_the_first_load_after_a_restart_is_read(
    make_agent: Any, make_sides: Any, clock: Any, noticed: bool
) -> None:
    """The worker's client has not heard of the restart; or it tried in vain for so long that it
    would make a pause of seconds now."""
    agent = make_agent()
    sides = make_sides(agent)
    scheduler, worker = sides.scheduler, sides.worker
    assert scheduler._client.attached
    assert worker._client.attached
    agent.stop()
    if noticed:
        link = worker._client._link
        link.now_s = link._patience._clock = clock
        for _ in range(10):
            clock.ahead_s += 10
            assert not worker._client.attached
    agent.start()
    stored(agent)
    assert soon(lambda: scheduler._client.attached)
    request = Request("r", [*TOKENS, 1])
    assert scheduler.matched(request, 0) == (4 * BLOCK, False)
    scheduler.admitted(request, [[0, 1, 2, 3]], 4 * BLOCK)
    worker.load(scheduler.plan(step_output({"r": 1}, {"r": [0, 1, 2, 3]})))
    assert worker.take_errors() == set()
    assert [sides.memories[0].read(n) for n in range(4)] == [
        page_of(TOKENS[: (n + 1) * BLOCK]) for n in range(4)
    ]


def test_the_first_load_of_several_kinds_after_a_restart_is_read(make_agent: Any) -> None:
    agent = make_agent()
    engine = GroupedEngine(agent, blocks=120)
    for client in (*engine.scheduler._clients, engine.workers[0]._client):
        assert client.attached
    agent.restart()
    stored_of_each_kind(agent)
    assert all(soon(lambda c=c: c.attached) for c in engine.scheduler._clients)
    engine.add(Request("r", [*TOKENS, 1]), 1)
    while not engine.idle:
        engine.step()
    assert engine.failed == 0
    assert engine.loaded_tokens == 4 * BLOCK
    engine.close()


def test_an_agent_that_has_gone_again_is_sought_once(make_agent: Any, make_sides: Any) -> None:
    """A promise of an agent that died since: one look for it, however many loads name it."""
    agent = make_agent()
    sides = make_sides(agent)
    agent.restart()
    stored(agent)
    asker = Client(agent.socket_path, spaces=[SPACE], deadline_s=5.0)
    pages = asker.load_prepare(KEYS).wait(5.0).rows[0].sent()
    asker.close()
    agent.stop()
    link = sides.worker._client._link
    for _ in range(5):
        assert sides.worker._client.arena(pages) is None
    assert link._patience.failures <= 2
    agent.start()
    assert sides.worker._client.arena(pages) is None, "another life's"


def test_a_promise_ends_with_the_agent_that_gave_it(make_agent: Any, make_sides: Any) -> None:
    agent = make_agent()
    sides = make_sides(agent)
    stored(agent)
    request = Request("queued", [*TOKENS, 1])
    assert sides.scheduler.matched(request, 0) == (4 * BLOCK, False)
    assert sides.scheduler.matched(request, 0) == (4 * BLOCK, False)
    agent.restart()
    assert sides.scheduler.matched(request, 0) == (0, False)
    sides.scheduler.admitted(request, [[0, 1, 2, 3]], 0)
    assert not sides.scheduler.plan(step_output({}, {})).loads


def test_a_promise_of_several_kinds_ends_with_the_agent_that_gave_it(make_agent: Any) -> None:
    agent = make_agent()
    engine = GroupedEngine(agent, blocks=120)
    stored_of_each_kind(agent)
    request = Request("queued", [*TOKENS, 1])
    assert engine.scheduler.matched(request, 0) == (4 * BLOCK, True)
    assert engine.scheduler.matched(request, 0) == (4 * BLOCK, True)
    agent.restart()
    assert engine.scheduler.matched(request, 0) == (0, False)
    engine.close()
