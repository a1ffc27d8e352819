"""Killed at random moments while several processes store and load: lost is a miss, never wrong.

The seed is printed; ONGGI_SEED replays one. When a process is killed is drawn from it, what was
going on just then is the machine's.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import MIB, AgentProcess, BareClient, until
from workers import WORKERS, StartWorker, stop_worker

from onggi_core.board.layout import Layout, slots_for

KILLS = 10
KILLS_SOAK = 200
START_S_MAX = 1.2
"""A start takes half a second to more than one on a busy machine."""
SERVING_S_MAX = 0.5
DISK_BYTES = 32 * MIB
BOARD_BYTES = Layout(slots_for(16 * MIB)).nbytes

FLAGS = ("--memory", "16MiB", "--extent", "4MiB", "--disk", "32MiB")


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("ONGGI_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}: replay with ONGGI_SEED={seed}")
    return seed


StartAgent = Callable[[], AgentProcess]


@pytest.fixture
def start_agent(memory_folder: Path, tmp_path: Path) -> Iterator[StartAgent]:
    started: list[AgentProcess] = []

    def start_one() -> AgentProcess:
        disk = ("--disk-path", str(tmp_path / "disk"))
        started.append(AgentProcess(memory_folder, *FLAGS, *disk))
        return started[-1]

    yield start_one
    for agent in started:
        agent.clean_up()


@pytest.mark.timeout(600)
def test_killed_ten_times(
    seed: int, start_worker: StartWorker, start_agent: StartAgent, tmp_path: Path
) -> None:
    _kill_under_load(KILLS, seed, start_worker, start_agent, tmp_path / "disk")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_two_hundred_times(
    seed: int, start_worker: StartWorker, start_agent: StartAgent, tmp_path: Path
) -> None:
    _kill_under_load(KILLS_SOAK, seed, start_worker, start_agent, tmp_path / "disk")


def _kill_under_load(
    kills: int, seed: int, start_worker: StartWorker, start_agent: StartAgent, disk: Path
) -> None:
    dice = random.Random(seed)
    workers = [start_worker(seed + n, *worker) for n, worker in enumerate(WORKERS)]
    for _ in range(kills):
        agent = start_agent()
        if dice.random() < 0.25:
            time.sleep(dice.uniform(0.0, START_S_MAX))
        else:
            agent.wait_for("listening")
            _wait_until_attached(agent)
            time.sleep(dice.uniform(0.0, SERVING_S_MAX))
        assert agent.end(signal.SIGKILL) == -signal.SIGKILL, agent.lines
        agent.clean_up()
        assert [worker.poll() for worker in workers] == [None] * len(workers), "a wrong byte"
        if disk.exists():
            assert sum(p.stat().st_blocks * 512 for p in disk.iterdir()) <= DISK_BYTES
        used = sum(p.stat().st_blocks * 512 for p in agent.folder.iterdir())
        assert used <= 16 * MIB + BOARD_BYTES + 64 * 1024
    agent = start_agent()
    agent.wait_for("listening")
    stats = _wait_for_traffic(agent)
    assert stats["hit_disk_blocks"] > 0
    reports = [stop_worker(worker) for worker in workers]
    print(f"{kills} kills; {reports}")
    assert agent.end() == 0
    for report in reports:
        assert report["wrong"] == 0
        assert report["loaded"] > 0
        assert report["stored"] > 0
    assert sum(report["sessions"] for report in reports) > kills // 2


def _wait_until_attached(agent: AgentProcess) -> None:
    """Clients come back with a growing delay; a kill without one of them would prove little."""
    client = BareClient(agent)
    until("a worker to come back", lambda: client.stats()["sessions"] > 1)
    client.close()


def _wait_for_traffic(agent: AgentProcess) -> dict[str, Any]:
    """In the last life all workers attach again, and what the disk kept is read."""
    client = BareClient(agent)

    def busy() -> dict[str, Any]:
        stats = client.stats()
        enough = stats["hit_disk_blocks"] > 50 and stats["hit_host_blocks"] > 50
        return stats if enough and stats["sessions"] == len(WORKERS) + 1 else {}

    stats = until("hits from both tiers", busy)
    client.close()
    return stats
