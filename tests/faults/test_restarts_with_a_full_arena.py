"""Agent and engine are killed in any order while the arena is full: it never takes memory twice.

Pages in a memory volume outlive the container, so it ran out of memory again at each restart:
kubernetes/kubernetes#128339.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import MIB, PAGE_BYTES, REPOSITORY, WAIT_S, AgentProcess, BareClient, chain
from machine import MemoryGroup

from onggi_core.board.layout import Layout, slots_for

ARENA_BYTES = 48 * MIB
BOARD_BYTES = Layout(slots_for(ARENA_BYTES)).nbytes
BLOCKS = ARENA_BYTES // PAGE_BYTES
SHARED_BYTES_MAX = ARENA_BYTES + 64 * MIB
ENGINE = f"""
import sys, time
from onggi import Client, SpaceSpec
client = Client(sys.argv[1], spaces=[SpaceSpec(b"f" * 16, {PAGE_BYTES}, 16)], deadline_s=5)
while True:
    client.lookup([b"k" * 16])
    client.populate_next()
    time.sleep(0.01)
"""


@pytest.fixture
def pod(memory_group: MemoryGroup, memory_folder: Path, tmp_path: Path) -> Iterator["Pod"]:
    """Agent and engine in one group, whose limit one arena fits into and two do not."""
    memory_group.limit(2 * ARENA_BYTES + 64 * MIB)
    pod = Pod(memory_group, memory_folder, tmp_path / "disk")
    yield pod
    pod.clean_up()


class Pod:
    def __init__(self, group: MemoryGroup, folder: Path, disk: Path) -> None:
        self.group = group
        self.folder = folder
        self._disk = disk
        self._agents: list[AgentProcess] = []
        self._engines: list[subprocess.Popen[bytes]] = []
        self.start_agent()
        self.start_engine()

    def start_agent(self) -> None:
        join = f"open({str(self.group.procs)!r}, 'w').write('0')"
        flags = ("--memory", "48MiB", "--extent", "4MiB", "--disk", "64MiB")
        disk = ("--disk-path", str(self._disk))
        self._agents.append(AgentProcess(self.folder, *flags, *disk, patch=join))

    def start_engine(self) -> None:
        join = f"open({str(self.group.procs)!r}, 'w').write('0')"
        run = [sys.executable, "-c", f"{join}\n{ENGINE}", str(self.folder / "agent.sock")]
        paths = {**os.environ, "PYTHONPATH": str(REPOSITORY / "sidecar")}
        self._engines.append(subprocess.Popen(run, env=paths))

    @property
    def agent(self) -> AgentProcess:
        return self._agents[-1]

    def kill_agent(self) -> None:
        self.agent.end(signal.SIGKILL)
        self.start_agent()

    def kill_engine(self) -> None:
        self._engines[-1].kill()
        self._engines[-1].wait(WAIT_S)
        self.start_engine()

    def clean_up(self) -> None:
        for engine in self._engines:
            engine.kill()
            engine.wait(WAIT_S)
        for agent in self._agents:
            agent.clean_up()


def test_restarts_with_a_full_arena_take_the_memory_of_one(pod: Pod) -> None:
    _restart(pod, agent_kills=3, engine_kills=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_ten_restarts_with_a_full_arena_take_the_memory_of_one(pod: Pod) -> None:
    _restart(pod, agent_kills=10, engine_kills=3)


def _restart(pod: Pod, *, agent_kills: int, engine_kills: int) -> None:
    order = [pod.kill_agent] * agent_kills + [pod.kill_engine] * engine_kills
    random.Random(1).shuffle(order)
    stored: dict[bytes, bytes] = {}
    for number, kill in enumerate([*order, pod.kill_engine]):
        agent = pod.agent
        assert agent.wait_for("arena_ready")["ready_bytes"] == ARENA_BYTES
        agent.wait_for("listening")
        client = BareClient(agent)
        for key, page in list(stored.items())[::50]:
            assert client.load((key,)) in ([], [page])
        stored = chain(BLOCKS, seed=number)
        client.store(stored)
        client.close()
        files = sum(path.stat().st_blocks * 512 for path in pod.folder.iterdir())
        assert files <= ARENA_BYTES + BOARD_BYTES + 64 * 1024
        assert pod.group.shared_bytes <= SHARED_BYTES_MAX
        assert pod.group.killed == 0
        kill()
