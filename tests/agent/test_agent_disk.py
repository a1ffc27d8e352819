"""A real agent process with a disk tier: restarts, claims, damage, full filesystems."""

import resource
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_process import MIB, SMALL, AgentProcess, BareClient, StartAgent, chain, ready, until
from disk_bench import edit, fill_up

from onggi_sidecar.disk.layout import BLOCK_BYTES, REGIONS_OFFSET
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES


def test_a_killed_agent_finds_its_disk_tier_again(
    start: StartAgent, disk_flags: tuple[str, ...]
) -> None:
    blocks = chain(40)
    first = start(*disk_flags)
    client = ready(first)
    client.store(blocks)
    client.wait_until_on_disk(40)
    first.end(signal.SIGKILL)
    (first.folder / client.welcome.arena).unlink()  # its memory is gone, as after a reboot
    client.close()

    second = start(*disk_flags)
    client = ready(second)
    assert second.said("disk_ready")[0]["adopted_blocks"] == 40
    assert client.looked(*blocks) == (0, 40)
    assert client.load(tuple(blocks)) == list(blocks.values())
    assert client.stats()["hit_disk_blocks"] == 40
    assert client.looked(*blocks) == (40, 40)
    client.close()


def test_a_second_agent_on_the_disk_folder_is_told_who_has_it(
    start: StartAgent, disk_flags: tuple[str, ...], tmp_path: Path
) -> None:
    first = start(*disk_flags, ONGGI_AGENT_POD_NAME="chat-0")
    client = ready(first)
    client.store(chain(10))
    (tmp_path / "run").mkdir()
    second = AgentProcess(tmp_path / "run", *SMALL, *disk_flags)
    assert second.wait() == 1
    message = second.said("start_refused")[0]["message"]
    assert f"is in use by process {first.process.pid} of pod chat-0 since 20" in message
    assert list((tmp_path / "run").iterdir()) == []
    second.clean_up()
    client.wait_until_on_disk(10)
    client.close()


@pytest.mark.parametrize("path", ["/proc/onggi", "/sys/onggi"])
def test_a_disk_folder_that_cannot_be_used_costs_the_disk_tier_alone(
    start: StartAgent, path: str
) -> None:
    """The sentence names the path; test_any_user.py has user and group."""
    agent = start("--disk", "64MiB", "--disk-path", path)
    client = ready(agent)
    message = agent.wait_for("disk_unavailable")["message"]
    assert f"disk_path {path} is where the kernel shows its own state, and takes no" in message
    assert message.endswith("serving without a disk tier")
    blocks = chain(3)
    client.store(blocks)
    assert client.load(tuple(blocks)) == list(blocks.values())
    client.close()


def test_agents_that_share_a_disk_path_have_a_folder_each_and_successors_adopt(
    start: StartAgent, disk_flags: tuple[str, ...], tmp_path: Path
) -> None:
    shared = (*disk_flags, "--disk-claim", "shared")
    first = start(*shared)
    client = ready(first)
    blocks = chain(10)
    client.store(blocks)
    client.wait_until_on_disk(10)
    (tmp_path / "run").mkdir()
    second = AgentProcess(tmp_path / "run", *SMALL, *shared)
    second.wait_for("listening")
    assert second.said("disk_ready")[0]["adopted_blocks"] == 0
    assert client.load(tuple(blocks)) == list(blocks.values())
    first.end(signal.SIGKILL)
    client.close()
    successor = start(*shared)
    successor.wait_for("listening")
    assert successor.said("disk_ready")[0]["adopted_blocks"] == 10
    assert sorted(p.name for p in (tmp_path / "disk").iterdir()) == ["slot-0", "slot-1"]
    second.clean_up()


def test_damage_on_disk_costs_only_the_damaged_blocks(
    start: StartAgent, disk_flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Eight chained blocks, a bit of the third flipped: the prefix is two, and heals."""
    blocks = chain(8)
    keys = tuple(blocks)
    agent = start(*disk_flags)
    client = ready(agent)
    client.store(blocks)
    client.wait_until_on_disk(8)
    agent.end()
    client.close()
    segment = tmp_path / "disk" / "segment-000000"
    at = SEGMENT_HEADER_BYTES + segment.read_bytes()[SEGMENT_HEADER_BYTES:].index(blocks[keys[2]])
    edit(segment, at + 1000, lambda b: bytes([b[0] ^ 1]))

    client = ready(start(*disk_flags))
    assert client.load(keys) == list(blocks.values())[:2]
    assert [client.load((key,)) for key in keys] == [
        [] if n == 2 else [page] for n, page in enumerate(blocks.values())
    ]
    assert client.stats()["errors"]["corrupt"] == 1
    client.store({keys[2]: blocks[keys[2]]}, parent=keys[1])
    assert client.load(keys) == list(blocks.values())
    client.close()


def test_damage_in_the_page_table_is_counted_at_the_start(
    start: StartAgent, disk_flags: tuple[str, ...], tmp_path: Path
) -> None:
    agent = start(*disk_flags)
    client = ready(agent)
    client.store(chain(4))
    client.wait_until_on_disk(4)
    agent.end()
    client.close()
    table = tmp_path / "disk" / "table"
    edit(table, REGIONS_OFFSET + BLOCK_BYTES + 30, lambda b: bytes([b[0] ^ 1]))
    again = start(*disk_flags)
    port = again.wait_for("http_listening")["port"]
    assert again.said("disk_ready")[0]["damaged_records"] == 1
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        assert b'onggi_errors_total{kind="table_damaged"} 1.0' in page.read()


def test_a_disk_that_hangs_delays_no_lookup_and_the_end_by_no_more_than_its_deadline(
    disk_flags: tuple[str, ...], memory_folder: Path
) -> None:
    """dynamo#5012: onboarding from disk hung for ever. Every write blocks for a minute here."""
    patch = (
        "import time\n"
        "from onggi_sidecar.disk.device import Device\n"
        "Device.write_from = lambda *_: time.sleep(60)\n"
    )
    flags = (*SMALL, *disk_flags, "--shutdown-deadline-s", "2", "--io-deadline-s", "0.1")
    agent = AgentProcess(memory_folder, *flags, patch=patch)
    client = ready(agent)
    blocks = chain(10)
    client.store(blocks)
    assert client.load(tuple(blocks)) == list(blocks.values())
    begun_s = time.monotonic()
    assert agent.end() == 0
    assert 1.0 <= time.monotonic() - begun_s < 30.0
    assert not agent.wait_for("disk_sealed")["every_job_ended"]
    agent.clean_up()


def test_a_full_disk_is_no_space_and_heals(start: StartAgent, disk_flags: tuple[str, ...]) -> None:
    """A limit on file sizes stands in for a full filesystem: it refuses a new segment alike."""
    agent = start(*disk_flags)
    client = ready(agent)
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (MIB, -1))
    blocks = chain(10)
    client.store(blocks)
    until("writes to be given up", lambda: client.stats()["writes_in_flight"] == 0)
    assert client.load(tuple(blocks)) == list(blocks.values())
    stats = client.stats()
    assert stats["disk_pages"] == 0
    assert "File too large" in agent.wait_for("segment_refused")["message"]
    assert 0 < stats["errors"]["no_space"] <= 2 * 10  # each block twice at most, no loop
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    client.store(chain(10, seed=1))
    until("stores to reach the disk", lambda: _store_another(client) > 0)
    client.close()


def test_a_filesystem_that_somebody_else_fills_costs_no_request_and_heals(
    small_volume: Callable[[str], Path], start: StartAgent
) -> None:
    """Disk full below our own quota, for ever: dingodb/DingoCache#83."""
    mounted = small_volume("24M")
    agent = start("--disk", "20MiB", "--disk-path", str(mounted))
    client = ready(agent)
    kept = chain(10)
    client.store(kept)
    client.wait_until_on_disk(10)
    fill_up(mounted / "filler")
    for seed in range(10, 20):
        assert client.store(chain(10, seed=seed)) == 10
    until("writes to end", lambda: client.stats()["writes_in_flight"] == 0)
    assert client.load(tuple(kept)) == list(kept.values())
    assert "write_fault" not in client.stats()["errors"]
    (mounted / "filler").unlink()
    before = client.stats()["disk_pages"]
    until("stores to reach the disk", lambda: _store_another(client) > before)
    assert sum(p.stat().st_blocks * 512 for p in mounted.iterdir()) <= 20 * MIB
    assert agent.end() == 0


_seeds = iter(range(100, 10**6))


def _store_another(client: BareClient) -> int:
    client.store(chain(1, seed=next(_seeds)))
    pages: int = client.stats()["disk_pages"]
    return pages
