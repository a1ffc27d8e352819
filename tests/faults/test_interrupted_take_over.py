"""Taking over a dead agent's arena where it is slow, where room is short, and cut off by death."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_process import MIB, SMALL, AgentProcess, BareClient, chain, until

LARGE = ("--memory", "64MiB", "--extent", "4MiB")
SLOW = """
import onggi_sidecar.arena.file as f, time
step = f.ArenaFile.touch_step
def slow(self, *at):
    time.sleep({pause_s})
    return step(self, *at)
f.ArenaFile.touch_step = slow
"""


@pytest.fixture
def agents(small_volume: Callable[[str], Path]) -> Iterator[list[AgentProcess]]:
    """They end before the volume is taken away."""
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.clean_up()


def start(
    agents: list[AgentProcess], folder: Path, flags: tuple[str, ...] = LARGE, patch: str = ""
) -> BareClient:
    agents.append(AgentProcess(folder, *flags, patch=patch))
    agents[-1].wait_for("listening")
    return BareClient(agents[-1])


def start_full(agents: list[AgentProcess], folder: Path) -> BareClient:
    client = start(agents, folder)
    agents[-1].wait_for("arena_ready")
    until("all of it", lambda: client.stats()["arena_ready_bytes"] == 64 * MIB)
    assert client.store(chain(900)) == 900
    return client


def test_a_take_over_needs_no_more_room_than_the_arena(
    agents: list[AgentProcess], small_volume: Callable[[str], Path]
) -> None:
    folder = small_volume("67m")  # with what is left free for copies that were stopped
    idle = start_full(agents, folder)
    agents[-1].end(signal.SIGKILL)
    client = start(agents, folder)
    until("all of it", lambda: client.stats()["arena_ready_bytes"] == 64 * MIB)
    assert client.stats()["inherited_blocks"] == 900
    assert client.load(tuple(chain(900))) == list(chain(900).values())
    idle.close()


def test_an_agent_killed_in_the_take_over_leaves_no_memory_that_nobody_can_free(
    agents: list[AgentProcess], small_volume: Callable[[str], Path]
) -> None:
    """A client that sleeps has the first file mapped all the while."""
    folder = small_volume("72m")
    idle = start_full(agents, folder)
    agents[-1].end(signal.SIGKILL)
    start(agents, folder, patch=SLOW.format(pause_s=0.3))
    time.sleep(1.0)
    agents[-1].end(signal.SIGKILL)
    client = start(agents, folder)
    assert client.stats()["arena_bytes"] == 64 * MIB
    until("all of it", lambda: client.stats()["arena_ready_bytes"] == 64 * MIB)
    until("the rest to go", lambda: not (folder / "arena.old").exists())
    idle.close()


def test_what_moves_in_slowly_is_not_given_up_for_a_watermark_on_the_way(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    """Each extent that comes full is more than there should be of the extents so far."""
    blocks = chain(150)
    for patch in ("", SLOW.format(pause_s=0.15)):
        client = start(agents, memory_folder, SMALL, patch)
        agents[-1].wait_for("arena_ready")
        until("all of it", lambda: client.stats()["arena_ready_bytes"] == 16 * MIB)  # noqa: B023
        if not patch:
            assert client.store(blocks) == 150
            agents[-1].end(signal.SIGKILL)
    assert client.stats()["inherited_blocks"] == 150
    assert client.stats()["evicted_host_blocks"] == 0
    assert client.load(tuple(blocks)) == list(blocks.values())


def test_a_store_on_the_way_pushes_nothing_out(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    """What is here of the arena ends in the middle of a chain: its end is worth the most."""
    blocks = chain(250)
    client = start(agents, memory_folder, SMALL)
    agents[-1].wait_for("arena_ready")
    until("all of it", lambda: client.stats()["arena_ready_bytes"] == 16 * MIB)
    assert client.store(blocks) == 250
    agents[-1].end(signal.SIGKILL)
    again = start(agents, memory_folder, SMALL, SLOW.format(pause_s=0.3))
    until("a part of it", lambda: again.stats()["inherited_blocks"] > 0)
    assert again.stats()["arena_ready_bytes"] < 16 * MIB
    again.store(chain(100, seed=1))
    until("all of it", lambda: again.stats()["arena_ready_bytes"] == 16 * MIB)
    assert again.load(tuple(blocks))[:200] == list(blocks.values())[:200]
