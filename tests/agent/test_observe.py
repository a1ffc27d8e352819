"""Observe, as the operator says it to a real agent: nothing is stored, and what would have been
saved is counted."""

from pathlib import Path
from typing import Any

from agent_process import StartAgent, chain, ready, until
from fake_operator import Operator

PROMPT = chain(10)
ASKED = 3
TOKENS = 16


def test_an_agent_that_is_told_to_observe_stores_nothing_and_counts_what_it_would_have_saved(
    start: StartAgent, operator: Operator, disk_flags: tuple[str, ...], tmp_path: Path
) -> None:
    operator.say(mode="Observe")
    agent = start(*disk_flags, **operator.environment)
    agent.wait_for("mode_set")
    client = ready(agent)
    until("the mode to be in force", lambda: client.stats()["mode"] == "Observe")
    for _ in range(ASKED):
        assert client.load(tuple(PROMPT)) == []
        assert client.store(PROMPT) == 0

    def observed() -> dict[str, Any]:
        found: dict[str, Any] = client.stats()["observe"]
        return found if found["hit_blocks"] else {}

    found = until("the ghosts to have seen it", observed)
    assert found["asked_blocks"] == ASKED * len(PROMPT)
    until("all of it", lambda: observed().get("hit_blocks") == (ASKED - 1) * len(PROMPT))
    found = observed()
    assert abs(found["saved_tokens"] - found["hit_blocks"] * TOKENS) <= TOKENS
    stats = client.stats()
    assert (stats["stored_blocks"], stats["host_pages"], stats["disk_pages"]) == (0, 0, 0)
    assert stats["refused_blocks"] == 0  # for want of room none was
    assert stats["tokens_saved"] == 0
    assert not list((tmp_path / "disk").glob("segment-*"))
    until("the operator to hear of it", lambda: operator.reports[-1]["mode"] == "Observe")
    client.close()
    assert agent.end() == 0


def test_what_is_held_already_is_served_while_it_observes_and_stores_come_back_after(
    start: StartAgent, operator: Operator
) -> None:
    agent = start(**operator.environment)
    client = ready(agent)
    assert client.store(PROMPT) == len(PROMPT)
    operator.say(mode="Observe")
    until("the mode to be in force", lambda: client.stats()["mode"] == "Observe")
    assert client.load(tuple(PROMPT)) == list(PROMPT.values())
    other = chain(5, seed=1)
    assert client.store(other) == 0
    assert client.looked(*other) == (0, 0)
    operator.say(mode="Active")
    until("the mode to be in force", lambda: client.stats()["mode"] == "Active")
    assert client.store(other) == 5
    assert client.load(tuple(other)) == list(other.values())
    client.close()
    assert agent.end() == 0
