"""Children of a client's process, against a real agent: the parent's session outlives them.

A process that only attached removed the segment when it exited: python/cpython#82300,
python/cpython#104291. A forked child's tear-down ended the parent's session:
lupinemachines/lupine#544.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from agent_process import PAGE_BYTES, REPOSITORY, AgentProcess, StartAgent, chain, ready, until

from onggi import Client, Load, LoadOutcome, SpaceSpec

SPACE = SpaceSpec(b"f" * 16, PAGE_BYTES, 16)
BLOCKS = chain(8)
KEYS, PAGES = list(BLOCKS), list(BLOCKS.values())
ROUNDS = 100
SPAWNED = 4
SPAWN = f"""
import sys, time
from onggi import Client, SpaceSpec
client = Client(sys.argv[1], spaces=[SpaceSpec(b"f" * 16, {PAGE_BYTES}, 16)], deadline_s=5)
give_up_s = time.monotonic() + 60
while not client.attached and time.monotonic() < give_up_s:
    time.sleep(0.01)
keys = [bytes([200 + n]) * 16 for n in range(3)]
pages = [bytes([n]) * {PAGE_BYTES} for n in range(3)]
stored = client.store(keys, pages)
assert stored.stored + stored.existing == 3, stored
"""


@pytest.fixture
def agent(start: StartAgent) -> AgentProcess:
    agent = start()
    ready(agent).close()
    return agent


class Parent:
    """Holds a lease while its children live, and gives each back whole."""

    def __init__(self, agent: AgentProcess) -> None:
        self.client = Client(str(agent.socket_path), spaces=[SPACE], deadline_s=5.0)
        until("it to attach", lambda: self.client.attached)
        assert self.client.store(KEYS, PAGES).stored == len(KEYS)
        self._held = self._hold()

    def _hold(self) -> Load:
        held = self.client.load_prepare(KEYS).wait(5.0)
        assert held.blocks == len(KEYS)
        return held

    def still_holds(self) -> None:
        """After each child: a lease is half a minute, and a hundred children may take longer."""
        buffers = [bytearray(PAGE_BYTES) for _ in KEYS]
        assert self.client.copy_out(self._held.pages(), buffers)
        assert [bytes(buffer) for buffer in buffers] == PAGES
        self.client.finish_load(self._held, LoadOutcome.LOADED)
        self._held = self._hold()


@pytest.fixture
def parent(agent: AgentProcess) -> Iterator[Parent]:
    parent = Parent(agent)
    number = parent.client.session_number
    yield parent
    parent.still_holds()
    until("the children's sessions to go", lambda: parent.client.stats()["sessions"] == 1)
    assert parent.client.session_number == number
    assert (agent.folder / "arena").exists()
    assert agent.socket_path.exists()
    parent.client.close()
    assert agent.end() == 0


def in_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def loads(client: Client) -> bool:
    until("it to attach", lambda: client.attached)
    buffers = [bytearray(PAGE_BYTES) for _ in KEYS]
    got = client.load(KEYS, buffers)
    return got == len(KEYS) and [bytes(buffer) for buffer in buffers] == PAGES


def test_a_hundred_forked_children_end(parent: Parent) -> None:
    for _ in range(ROUNDS):
        assert in_child(lambda: True) == 0
        parent.still_holds()


def test_a_hundred_forked_children_load_in_sessions_of_their_own(parent: Parent) -> None:
    """Each while a request of the parent's is under way: no reply goes to the wrong one."""
    for _ in range(ROUNDS):
        asked = parent.client.prefetch_begin(KEYS)
        assert in_child(lambda: loads(parent.client)) == 0
        assert parent.client.prefetch_end(asked).ready == len(KEYS)
        parent.still_holds()


def _spawn(agent: AgentProcess, parent: Parent, rounds: int) -> None:
    for _ in range(rounds):
        run = [sys.executable, "-c", SPAWN, str(agent.socket_path)]
        paths = {**os.environ, "PYTHONPATH": str(REPOSITORY / "sidecar")}
        subprocess.run(run, check=True, timeout=90, env=paths, close_fds=False)
        parent.still_holds()


def test_spawned_processes_store_and_end(agent: AgentProcess, parent: Parent) -> None:
    """With whatever descriptors they inherit."""
    _spawn(agent, parent, SPAWNED)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_spawned_processes_store_and_end(agent: AgentProcess, parent: Parent) -> None:
    _spawn(agent, parent, ROUNDS)
