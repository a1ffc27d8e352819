"""A real small filesystem under the disk tier that somebody else fills, and frees again.

A disk full below the tier's own budget made every write fail for ever: dingodb/DingoCache#83. One
was taken for a broken one: zuston/riffle#591. At full, reads have to work: openvstorage/alba#573.
"""

import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_process import MIB, AgentProcess, BareClient, StartAgent, chain, ready, until

STORES = FETCHES = 100
TRIES_A_STORE_MAX = 2


@pytest.fixture
def agent(ext4: Callable[[int], Path], memory_folder: Path) -> Iterator[AgentProcess]:
    """Two segments' worth of the tier are used when the disk fills."""
    folder = ext4(64 * MIB)
    flags = ("--memory", "8MiB", "--extent", "4MiB", "--disk", "48MiB")
    made = AgentProcess(memory_folder, *flags, "--disk-path", str(folder / "tier"))
    yield made
    made.clean_up()


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb") as file:
        while (room := os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize) > 64 * 1024:
            os.posix_fallocate(file.fileno(), file.tell(), room - 32 * 1024)
            file.seek(0, os.SEEK_END)
    return filler


def metric(agent: AgentProcess, name: str) -> float:
    port = agent.wait_for("http_listening")["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        found = re.search(rf"^{re.escape(name)} (\S+)$", page.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_disk_that_somebody_else_fills_costs_no_request_and_heals(
    agent: AgentProcess, tmp_path: Path
) -> None:
    agent.wait_for("arena_ready")
    agent.wait_for("listening")
    client = BareClient(agent)
    kept = chain(FETCHES)
    client.store(kept)
    client.wait_until_on_disk(FETCHES)
    filler = fill(tmp_path / "ext4")

    for n in range(STORES):
        assert client.store(chain(1, seed=100 + n)) == 1
    until("writes to end", lambda: client.stats()["writes_in_flight"] == 0)
    until("no space to be shown", lambda: metric(agent, "onggi_disk_no_space") == 1)
    errors = client.stats()["errors"]
    assert 0 < errors["no_space"] <= STORES * TRIES_A_STORE_MAX
    assert "write_fault" not in errors
    assert "read_fault" not in errors
    fetched = [client.load((key,)) for key in kept]
    assert all(got in ([], [page]) for got, page in zip(fetched, kept.values(), strict=True))
    assert sum(map(len, fetched)) > 0  # the others gave way: the tier goes on in the room it has

    filler.unlink()
    number = iter(range(1000, 2000))
    before = client.stats()["written_bytes"]

    def healed() -> bool:
        client.store(chain(1, seed=next(number)))
        return bool(client.stats()["written_bytes"] > before)

    until("stores to reach the disk again", healed)
    until("the disk to be well again", lambda: metric(agent, "onggi_disk_no_space") == 0)
    for n in range(STORES):
        assert client.store(chain(1, seed=5000 + n)) == 1
    client.close()
    assert agent.end() == 0
    used = sum(p.stat().st_blocks * 512 for p in (tmp_path / "ext4" / "tier").iterdir())
    assert used <= 48 * MIB


def test_an_agent_that_starts_on_a_full_disk_serves_from_memory(
    ext4: Callable[[int], Path], start: StartAgent
) -> None:
    folder = ext4(32 * MIB)
    filler = fill(folder)
    agent = start("--disk", "24MiB", "--disk-path", str(folder / "tier"))
    client = ready(agent)
    blocks = chain(20)
    client.store(blocks)
    assert client.load(tuple(blocks)) == list(blocks.values())
    filler.unlink()
    assert agent.end() == 0
    again = start("--disk", "24MiB", "--disk-path", str(folder / "tier"))
    again.wait_for("listening")
    assert again.said("disk_ready")
