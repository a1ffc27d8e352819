"""An agent that is killed leaves its arena; the next takes over what was sealed, without a disk.

Engines live on and hold the dead agent's file mapped: they may write to pages it gave them for as
long as they like.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import MIB, SMALL, AgentProcess, BareClient, chain, ready, until

from onggi_core.arena_header import EPOCH_OFFSET
from onggi_core.identity import ROOT
from onggi_core.wire.requests import StorePrepare

BLOCKS = 150
"""Of 64 KiB, in an arena of 16 MiB: more than two extents."""


@pytest.fixture
def agents(memory_folder: Path) -> Iterator[list[AgentProcess]]:
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.clean_up()


def start(agents: list[AgentProcess], folder: Path, *flags: str) -> AgentProcess:
    agents.append(AgentProcess(folder, *(flags or SMALL)))
    return agents[-1]


def killed_after_storing(
    agents: list[AgentProcess], folder: Path
) -> tuple[dict[bytes, bytes], BareClient]:
    agent = start(agents, folder)
    client = ready(agent)
    blocks = chain(BLOCKS)
    assert client.store(blocks) == BLOCKS
    agent.end(signal.SIGKILL)
    return blocks, client


def test_sealed_pages_are_hits_again_and_their_bytes_the_same(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    blocks, _ = killed_after_storing(agents, memory_folder)
    client = ready(start(agents, memory_folder))
    assert client.load(tuple(blocks)) == list(blocks.values())
    assert client.stats()["inherited_blocks"] == BLOCKS
    assert client.stats()["errors"] == {}
    client.close()


def test_what_was_reserved_when_the_agent_died_is_not_there(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    agent = start(agents, memory_folder)
    client = ready(agent)
    sealed, half = chain(3), chain(4, seed=1)
    client.store(sealed)
    client.call(StorePrepare(0, ROOT, tuple(half)))
    agent.end(signal.SIGKILL)
    again = ready(start(agents, memory_folder))
    assert again.load(tuple(sealed)) == list(sealed.values())
    assert again.load(tuple(half)) == []
    assert again.stats()["inherited_blocks"] == 3
    again.close()


def test_a_client_of_the_dead_agent_writes_into_nobodys_page(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    """It was given pages, and copies for as long as it likes: the new file is another one."""
    blocks, client = killed_after_storing(agents, memory_folder)
    again = ready(start(agents, memory_folder))
    assert bytes(client.arena[EPOCH_OFFSET : EPOCH_OFFSET + 16]) == bytes(16)
    header_bytes = 4096
    client.arena[header_bytes:] = b"x" * (len(client.arena) - header_bytes)
    assert again.load(tuple(blocks)) == list(blocks.values())
    again.close()


def test_the_next_takes_over_from_one_that_took_over(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    blocks, _ = killed_after_storing(agents, memory_folder)
    for _ in range(3):
        client = ready(start(agents, memory_folder))
        assert client.load(tuple(blocks)) == list(blocks.values())
        agents[-1].end(signal.SIGKILL)


def test_a_smaller_arena_takes_over_what_it_has_room_for(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    blocks, _ = killed_after_storing(agents, memory_folder)
    agent = start(agents, memory_folder, "--memory", "8MiB", "--extent", "4MiB")
    agent.wait_for("arena_ready")
    agent.wait_for("listening")
    client = BareClient(agent)
    until("both extents", lambda: client.stats()["arena_ready_bytes"] == 8 * MIB)
    assert 0 < client.stats()["inherited_blocks"] <= 128
    found = client.load(tuple(blocks))
    assert found == list(blocks.values())[: len(found)]
    used = sum(path.stat().st_blocks * 512 for path in memory_folder.iterdir())
    assert used < 9 * MIB
    client.close()


@pytest.mark.parametrize("extent", ["2MiB", "8MiB"])
def test_an_arena_of_other_extents_begins_empty(
    agents: list[AgentProcess], memory_folder: Path, extent: str
) -> None:
    blocks, _ = killed_after_storing(agents, memory_folder)
    client = ready(start(agents, memory_folder, "--memory", "16MiB", "--extent", extent))
    assert client.load(tuple(blocks)) == []
    assert client.stats()["inherited_blocks"] == 0
    client.close()


def test_after_a_clean_end_nothing_is_left_to_take_over(
    agents: list[AgentProcess], memory_folder: Path
) -> None:
    agent = start(agents, memory_folder)
    client = ready(agent)
    client.store(chain(3))
    client.close()
    assert agent.end() == 0
    assert not (memory_folder / "arena").exists()


def test_with_a_disk_what_it_lacks_is_written_to_it(
    agents: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    blocks, _ = killed_after_storing(agents, memory_folder)
    disk = ("--disk", "64MiB", "--disk-path", str(tmp_path / "disk"))
    client = ready(start(agents, memory_folder, *SMALL, *disk))
    until("all of it on disk", lambda: client.stats()["disk_pages"] == BLOCKS)
    assert client.load(tuple(blocks)) == list(blocks.values())
    client.close()
