"""The client against `onggi agent` as a process: deaths, restarts, the disk tier."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import engine_harness
import pytest
from engine_harness import AgentProcess, soon

from onggi import Client, LoadOutcome, SpaceSpec, block_keys

PAGE = 65_536
SPACE = SpaceSpec(b"r" * 16, PAGE, 16)
KEYS = block_keys(list(range(64 * 16)), 16)
PAGES = [(hashlib.sha256(key).digest() * (PAGE // 32))[:PAGE] for key in KEYS]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path, memory="16MiB", disk="64MiB") as agent:
        yield agent


@pytest.fixture
def client(agent: AgentProcess) -> Iterator[Client]:
    client = Client(agent.socket, spaces=[SPACE], deadline_s=30.0)
    assert soon(lambda: client.store(KEYS, PAGES).refused == 0)  # extents are touched meanwhile
    yield client
    client.close()


def test_blocks_come_back_from_the_host_tier(client: Client) -> None:
    assert load(client) == 64
    assert soon(lambda: client.stats()["hit_host_blocks"] == 64)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_blocks_come_back_from_disk_after_the_agents_end(
    agent: AgentProcess, client: Client, end: str
) -> None:
    """The arena is gone with the pod's memory where the agent alone was killed, too."""
    assert written(client)
    number = client.session_number
    agent.stop() if end == "stop" else agent.kill()
    Path(agent.socket).with_name("arena").unlink(missing_ok=True)
    assert client.lookup(KEYS).ready == 0
    agent.start()
    assert soon(lambda: client.lookup(KEYS).pending == 64)
    assert client.session_number != number
    assert load(client, wait_s=30.0) == 64
    assert soon(lambda: client.stats()["hit_disk_blocks"] == 64)


def test_blocks_come_back_from_the_arena_of_an_agent_that_was_killed(
    agent: AgentProcess, client: Client
) -> None:
    assert soon(lambda: client.lookup(KEYS).ready == 64)
    number = client.session_number
    agent.kill()
    assert client.lookup(KEYS).ready == 0
    agent.start()
    assert soon(lambda: client.lookup(KEYS).ready == 64)
    assert client.session_number != number
    assert load(client) == 64
    assert client.stats()["hit_host_blocks"] == 64


def test_a_load_pinned_across_the_agents_restart_is_not_trusted(
    agent: AgentProcess, client: Client
) -> None:
    assert written(client)
    pinned = client.load_prepare(KEYS).wait(30.0)
    assert pinned.blocks == 64
    agent.kill()
    buffers = [bytearray(PAGE) for _ in KEYS]
    if client.copy_out(pinned.pages(), buffers):  # nobody has freed the dead agent's pages yet
        assert [bytes(b) for b in buffers] == PAGES
    agent.start()
    assert not client.copy_out(pinned.pages(), buffers)
    client.finish_load(pinned, LoadOutcome.LOADED)
    assert soon(lambda: load(client, wait_s=30.0) == 64)


def test_a_client_that_ends_leaves_nothing_open(agent: AgentProcess, client: Client) -> None:
    other = Client(agent.socket, spaces=[SPACE], deadline_s=30.0)
    assert other.load_prepare(KEYS).wait(30.0).blocks == 64
    assert other.store_prepare([b"n" * 16]).granted == (0,)
    assert client.stats()["open_loads"] == 1
    assert client.stats()["open_stores"] == 1
    other.close()
    assert soon(lambda: client.stats()["sessions"] == 1)
    assert client.stats()["open_loads"] == client.stats()["open_stores"] == 0


def test_what_was_discarded_does_not_come_back_with_the_next_agent(
    agent: AgentProcess, client: Client
) -> None:
    assert written(client)
    assert client.discard(KEYS[16:]) == 48
    assert soon(lambda: client.stats()["dead_pages"] == 0)
    stats = client.stats()
    assert stats["host_pages"] == stats["disk_pages"] == 16
    agent.stop()
    Path(agent.socket).with_name("arena").unlink(missing_ok=True)
    assert client.discard(KEYS) == 0
    agent.start()
    assert soon(lambda: client.lookup(KEYS).pending == 16)
    assert client.stats()["disk_pages"] == 16


def test_an_agent_that_is_not_waited_for_any_longer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness left it, where a busy machine took longer to start it than a test may wait."""
    monkeypatch.setattr(engine_harness, "STARTS_WITHIN_S", -1)
    late = AgentProcess(tmp_path)
    with pytest.raises(AssertionError, match="no socket within"):
        late.start()
    assert late._process is not None
    assert late._process.poll() is not None


def written(client: Client) -> bool:
    """All blocks are on disk, and the page table says so."""
    return soon(lambda: client.stats().get("written_bytes", 0) == 64 * PAGE)


def load(client: Client, wait_s: float = 0.0) -> int:
    """Blocks loaded, each of them right."""
    buffers = [bytearray(PAGE) for _ in KEYS]
    got = client.load(KEYS, buffers, wait_s=wait_s)
    assert [bytes(b) for b in buffers[:got]] == PAGES[:got]
    return got
