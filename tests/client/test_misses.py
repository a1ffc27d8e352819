"""Prompts that nobody has kept: known from a real agent's board without asking, and told later."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_harness import AgentProcess, sent, soon
from tiny_engine import TinyEngine, run_until_idle
from vllm_stand_ins import BLOCK, PAGE, SPACE, Request, Sides

from onggi import Client, block_keys
from onggi.link import NOTE_KEYS
from onggi.misses import TOLD_EVERY_S, TOLD_KEYS
from onggi_core.wire.frame import KEYS_MAX, Op

KEYS = block_keys(list(range(8 * BLOCK)), BLOCK)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path, memory="16MiB") as agent:
        yield agent


@pytest.fixture
def client(agent: AgentProcess, clock: Any) -> Iterator[Client]:
    client = Client(agent.socket, spaces=[SPACE], deadline_s=30.0, clock=clock)
    assert soon(lambda: client.attached and client.stats().get("arena_ready_bytes") == 16 << 20)
    yield client
    client.close()


def prompt(number: int, blocks: int = 8) -> list[bytes]:
    first = 1_000_000 * number
    return block_keys(list(range(first, first + blocks * BLOCK)), BLOCK)


def test_an_unknown_prompt_is_a_miss_that_nobody_is_asked_about(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = sent(monkeypatch, client)
    assert client.misses(KEYS)
    assert not client.misses([])
    assert ops == []
    assert client.lookup(KEYS).pending == 0


def test_a_prompt_is_asked_about_while_any_tier_holds_its_first_block(client: Client) -> None:
    assert client.store(KEYS[:1], [bytes(PAGE)]).stored == 1
    assert not client.misses(KEYS)
    assert client.discard(KEYS[:1]) == 1
    assert soon(lambda: client.misses(KEYS))


def test_misses_are_told_together_and_counted(client: Client, clock: Any) -> None:
    before = client.stats()
    for number in range(10):
        assert client.misses(prompt(number), noted=True)
        assert client.misses(prompt(number))  # looked at again: it counts once
    client.tidy()
    assert client.stats()["lookup_requests"] == before["lookup_requests"]
    clock.ahead_s += TOLD_EVERY_S
    client.tidy()
    after = client.stats()
    counted = {"lookup_requests": 10, "lookup_blocks": 80, "miss_blocks": 80}
    assert {name: after[name] - before[name] for name in counted} == counted
    client.tidy()
    assert client.stats()["lookup_requests"] == after["lookup_requests"]


def test_many_misses_are_told_at_once_and_the_rest_at_the_end(
    agent: AgentProcess, client: Client
) -> None:
    blocks = TOLD_KEYS // 4
    for number in range(5):
        assert client.misses(prompt(number, blocks), noted=True)
    assert client.stats()["lookup_requests"] == 4
    other = Client(agent.socket, spaces=[SPACE], deadline_s=30.0)
    client.close()
    assert soon(lambda: other.stats().get("lookup_requests") == 5)
    other.close()


def test_an_agent_that_is_away_is_no_miss_that_is_sure(tmp_path: Path) -> None:
    away = Client(str(tmp_path / "agent.sock"), spaces=[SPACE])
    assert not away.misses(KEYS, noted=True)
    away.close()


def test_a_child_tells_nothing_of_its_parents_misses(client: Client) -> None:
    assert client.misses(KEYS, noted=True)
    child = os.fork()
    if not child:
        told = client._link.current is not None or client.misses(KEYS)
        client.close()
        os._exit(0 if told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.stats()["lookup_requests"] == 0, "the parent's, and not told yet"


def test_a_connector_asks_nobody_about_a_new_prompt_and_finds_what_was_kept(
    agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = SimpleNamespace(socket_path=agent.socket)
    first, second = TinyEngine(Sides(on)), TinyEngine(Sides(on))
    asker = first.sides.scheduler._client
    assert soon(lambda: asker.stats().get("arena_ready_bytes") == 16 << 20)
    ops = sent(monkeypatch, asker)
    tokens = list(range(6 * BLOCK + 3))
    first.add("a", tokens, 4)
    run_until_idle(first, lambda _: time.sleep(0.001))
    assert not {Op.PREFETCH, Op.LOOKUP, Op.LOAD_PREPARE} & set(ops)
    counts = first.sides.tally.take()
    assert counts["lookups"] == 1
    assert counts["saved_blocks"] == 6
    second.add("b", tokens, 4)
    run_until_idle(second, lambda _: time.sleep(0.001))
    assert second.sides.tally.take()["loaded_tokens_host"] == 6 * BLOCK
    answers = [one.request.all_token_ids for engine in (first, second) for one in engine.done]
    assert answers[0] == answers[1]
    for engine in (first, second):
        engine.sides.close()


def test_a_prompt_stored_while_a_request_of_it_queued_is_found(agent: AgentProcess) -> None:
    on = SimpleNamespace(socket_path=agent.socket)
    sides = Sides(on)
    store = Client(agent.socket, spaces=[SPACE], deadline_s=30.0)
    assert soon(lambda: store.stats().get("arena_ready_bytes") == 16 << 20)
    one = Request("queued", list(range(4 * BLOCK + 1)))
    sides.scheduler.arrived(one)
    keys = block_keys(one.all_token_ids, BLOCK)
    assert store.store(keys, [bytes(PAGE)] * 4).stored == 4
    assert sides.scheduler.matched(one, 0) == (4 * BLOCK, False)
    assert not sides.scheduler.finished(one)
    sides.close()
    store.close()


def test_a_prompt_of_any_length_is_counted_and_ends_no_session(client: Client) -> None:
    number = client.session_number
    for blocks in (2, KEYS_MAX, 2, 2 * KEYS_MAX + 1):
        assert client.misses(some_keys(blocks), noted=True)
    before = client.stats()
    assert client.misses(some_keys(TOLD_KEYS), noted=True)
    after = client.stats()
    assert (before["lookup_requests"], before["lookup_blocks"]) == (4, 4 + 2 * KEYS_MAX)
    assert after["lookup_requests"] == 5
    assert client.session_number == number


def some_keys(blocks: int) -> list[bytes]:
    return [(5 << 64 | number).to_bytes(16, "little") for number in range(blocks)]


def test_a_key_of_another_length_is_its_callers_mistake(client: Client) -> None:
    with pytest.raises(ValueError, match=r"keys\[1\]"):
        client.misses([KEYS[0], b"short"], noted=True)
    with pytest.raises(TypeError):
        client.misses(["text"], noted=True)  # type: ignore[list-item]
    assert client.attached


def test_the_board_of_an_agent_that_died_says_nothing(tmp_path: Path) -> None:
    first = AgentProcess(tmp_path, memory="16MiB")
    with first:
        client = Client(first.socket, spaces=[SPACE], deadline_s=30.0)
        assert soon(lambda: client.attached)
        assert client.misses(KEYS)
        first.kill()
        first.start()
        assert not client.misses(KEYS), "the next agent is asked"
    client.close()


def test_a_load_of_any_length_from_the_board_is_told_of(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    session = client.showing()
    assert session is not None
    assert client._link.note(session, some_keys(1)), "the first of a second is told at once"
    before = client.stats()["observe"]["asked_blocks"]
    assert not client._link.note(session, some_keys(NOTE_KEYS - 1))
    assert client._link.note(session, some_keys(KEYS_MAX))
    assert client.stats()["observe"]["asked_blocks"] - before == KEYS_MAX - 1
    assert not caplog.records


def test_an_agent_of_an_earlier_version_is_told_of_no_misses(
    client: Client, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.misses(KEYS, noted=True)
    session, ops = client.showing(), sent(monkeypatch, client)
    assert session is not None
    monkeypatch.setattr(session.arena.board, "_beginnings", 0)
    clock.ahead_s += TOLD_EVERY_S
    client.tidy()
    assert Op.MISSED not in ops
    assert not client.misses(KEYS), "it is asked"
