"""Killed at any moment, over and over: what comes back is right or does not come back."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import MIB, AgentProcess, BareClient, chain, until

KILLS = 4
DISK_BYTES = 16 * MIB


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    disk = ("--disk", "16MiB", "--disk-path", str(tmp_path / "disk"))
    return ("--memory", "8MiB", "--extent", "4MiB", *disk)


@pytest.fixture
def lives() -> Iterator[list[AgentProcess]]:
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.clean_up()


def test_no_wrong_byte_after_kills_in_the_middle_of_writing(
    flags: tuple[str, ...], lives: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """Each life stores more than both tiers hold, so places are written over all the time, and is
    killed after a number of stores drawn from a fixed seed, while the disk still writes."""
    dice = random.Random(7)
    stored: dict[bytes, bytes] = {}
    right = 0
    for life in range(KILLS):
        agent = AgentProcess(memory_folder, *flags)
        lives.append(agent)
        agent.wait_for("arena_ready")
        agent.wait_for("listening")
        client = BareClient(agent)
        for key, page in stored.items():
            got = client.load((key,))
            assert got in ([], [page])
            right += bool(got)
        for batch in range(dice.randrange(10, 40)):
            blocks = chain(16, seed=1000 * (life + 1) + batch)
            client.store(blocks)
            stored |= blocks
        agent.end(signal.SIGKILL)
        client.close()
        used = sum(p.stat().st_blocks * 512 for p in (tmp_path / "disk").iterdir())
        assert used <= DISK_BYTES
    assert right > 0


def test_the_disk_budget_holds_while_blocks_come_and_go(
    flags: tuple[str, ...], lives: list[AgentProcess], memory_folder: Path, tmp_path: Path
) -> None:
    """A file tier that grew without end: vllm#52784. Journal and headers count too."""
    agent = AgentProcess(memory_folder, *flags)
    lives.append(agent)
    agent.wait_for("arena_ready")
    agent.wait_for("listening")
    client = BareClient(agent)
    for batch in range(60):
        client.store(chain(16, seed=batch))
        until("writes to end", lambda: client.stats()["writes_in_flight"] == 0)
    stats = client.stats()
    assert stats["evicted_disk_blocks"] > 0
    assert stats["written_bytes"] > 3 * DISK_BYTES
    used = sum(p.stat().st_blocks * 512 for p in (tmp_path / "disk").iterdir())
    assert used <= DISK_BYTES
    last = chain(16, seed=59)
    assert client.load(tuple(last)) == list(last.values())
    assert agent.end() == 0
