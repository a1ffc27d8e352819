"""Waiting for an agent that is not there yet, or slow."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from onggi import Client, SpaceSpec

SPACE = SpaceSpec(b"a" * 16, 4096, 16)
LONG_S = 60.0


@pytest.fixture(autouse=True)
def patient() -> None:
    """Not here: how long attaching may take is what these tests are about."""


def test_an_agent_that_comes_later_is_waited_for(
    make_agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(tmp_path / "agent.sock", spaces=[SPACE])
    coming = threading.Timer(0.3, make_agent)
    coming.start()
    assert client.attach(wait_s=LONG_S)
    coming.join()
    first, last = (record.getMessage() for record in caplog.records)
    assert "no agent there: No such file or directory: start `onggi agent`" in first
    assert "answers now, after" in last
    client.close()


def test_an_agent_that_answers_late_is_waited_for(
    agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The first HELLO of a process at a starved agent: a tenth of a second was not enough, and what
    was said then, that nobody listens there, was not so."""
    agent.delay_s = 0.3
    client = Client(agent.socket_path, spaces=[SPACE])
    assert not client.attached
    (record,) = caplog.records
    assert "no answer to HELLO within 0.1 s: an agent is there, but it is" in record.getMessage()
    assert client.attach(wait_s=LONG_S)
    client.close()


def test_an_agent_that_does_not_come_is_waited_for_as_long_as_was_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(tmp_path / "agent.sock", spaces=[SPACE])
    began_s = time.monotonic()
    assert not client.attach(wait_s=0.3)
    assert time.monotonic() - began_s >= 0.2
    assert len(caplog.records) == 1
    assert not client.attach(wait_s=0)


def test_the_backoff_of_calls_before_does_not_hold_it_up(make_agent: Any, tmp_path: Path) -> None:
    client = Client(tmp_path / "agent.sock", spaces=[SPACE], clock=lambda: 1000.0)
    assert not client.attached
    make_agent()
    assert not client.attached  # not yet: this clock stands still
    assert client.attach(wait_s=LONG_S)
    assert client.attach(wait_s=0)
    assert client.attached
    client.close()


def test_a_closed_client_waits_for_nobody(agent: Any) -> None:
    client = Client(agent.socket_path, spaces=[SPACE])
    client.close()
    assert not client.attach(wait_s=float("inf"))


def test_a_session_that_has_ended_behind_its_last_answers_is_none(make_agent: Any) -> None:
    """One look at the stream took in the answers, and the end was seen at the next one."""
    agent = make_agent()
    client = Client(agent.socket_path, spaces=[SPACE], clock=lambda: 1000.0)
    for end in ("attached", "attach"):
        assert client.attach(wait_s=LONG_S)
        number = client.session_number
        done = len(agent.ops)
        client.prefetch_begin([b"k" * 16])
        while len(agent.ops) == done:
            time.sleep(0.002)
        agent.restart()
        if end == "attached":
            assert not client.attached
        else:
            assert client.attach(wait_s=LONG_S)
            assert client.session_number != number
    client.close()


def test_who_closes_while_another_thread_waits_for_an_answer_leaves_no_session(agent: Any) -> None:
    agent.delay_s = 0.5
    client = Client(agent.socket_path, spaces=[SPACE])
    waiter = threading.Thread(target=client.attach, args=(LONG_S,))
    waiter.start()
    while not agent.accepted:
        time.sleep(0.002)
    client.close()
    waiter.join()
    assert not client.attached
    until_s = time.monotonic() + LONG_S
    while agent.clients and time.monotonic() < until_s:
        time.sleep(0.002)
    assert not agent.clients, "its session lives on"
