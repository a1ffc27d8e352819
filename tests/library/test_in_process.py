"""An agent inside this process: it serves, keeps its disk, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onggi import Client, SpaceSpec, block_keys, fingerprint
from onggi_library import in_process
from onggi_library.in_process import PREFIX, InProcessAgent
from onggi_sidecar.errors import StartRefused

MIB = 1024 * 1024
SPACE = SpaceSpec(fingerprint({"model": "m"}), 64 * 1024, 16)
SIZES = {"memory": 16 * MIB, "extent": 4 * MIB}


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A part of it where nobody else begins and ends agents meanwhile."""
    with tempfile.TemporaryDirectory(prefix="onggi-test-", dir="/dev/shm") as folder:
        monkeypatch.setattr(in_process, "SHARED_MEMORY", Path(folder))
        yield


def folders() -> set[Path]:
    return set(in_process.SHARED_MEMORY.glob(f"{PREFIX}*"))


def client_of(agent: InProcessAgent) -> Client:
    """One that is attached, and has memory to store into."""
    client = Client(agent.socket, spaces=[SPACE], deadline_s=5)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if client.attached and client.stats().get("arena_ready_bytes"):
            return client
        time.sleep(0.05)
    raise AssertionError("nobody answers")


def page(number: int) -> bytes:
    return bytes([number]) * SPACE.page_bytes


def test_blocks_are_kept_and_nothing_is_left() -> None:
    before = folders()
    agent = InProcessAgent(**SIZES)
    try:
        client = client_of(agent)
        keys = block_keys(range(64), 16)
        assert client.store(keys, [page(n) for n in range(4)]).stored == 4
        found = [bytearray(SPACE.page_bytes) for _ in keys]
        assert client.load(keys, found) == 4
        assert found == [bytearray(page(n)) for n in range(4)]
        client.close()
    finally:
        agent.close()
    assert not agent.alive
    assert folders() == before


def test_what_is_on_disk_is_there_for_the_next(tmp_path: Path) -> None:
    disk = {"disk": 64 * MIB, "disk_path": tmp_path}
    keys = block_keys(range(64), 16)
    first = InProcessAgent(**SIZES, **disk)
    client = client_of(first)
    assert client.store(keys, [page(n) for n in range(4)]).stored == 4
    client.close()
    first.close()
    second = InProcessAgent(**SIZES, **disk)
    client = client_of(second)
    found = [bytearray(SPACE.page_bytes) for _ in keys]
    assert client.load(keys, found, wait_s=30) == 4
    assert found == [bytearray(page(n)) for n in range(4)]
    client.close()
    second.close()


def test_a_refusal_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    before = folders()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(StartRefused, match=r"memory is .*, but this machine has"):
        InProcessAgent(memory=2 * machine // MIB * MIB)
    with pytest.raises(ValueError, match="name a folder, since disk is set"):
        InProcessAgent(**SIZES, disk=64 * MIB)
    assert folders() == before


def test_two_live_side_by_side() -> None:
    agents = [InProcessAgent(**SIZES), InProcessAgent(**SIZES)]
    assert agents[0].socket != agents[1].socket
    for agent in agents:
        client_of(agent).close()
        agent.close()


def test_what_a_killed_program_left_is_removed_by_the_next() -> None:
    before = folders()
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from onggi_library import in_process
        in_process.SHARED_MEMORY = Path({str(in_process.SHARED_MEMORY)!r})
        agent = in_process.InProcessAgent(memory={16 * MIB}, extent={4 * MIB})
        print(agent.socket.parent, flush=True)
        time.sleep(600)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    left = Path(child.stdout.readline().strip())
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert left in folders()
    agent = InProcessAgent(**SIZES)
    assert left not in folders()
    agent.close()
    assert folders() == before


def test_a_forked_child_leaves_its_parents_agent_alone() -> None:
    agent = InProcessAgent(**SIZES)
    child = os.fork()
    if child == 0:
        agent.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client_of(agent).close()
    agent.close()
