"""The parts that need no peer to be installed, with sizes that say nothing about speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import __main__ as program
from bench import servers
from bench.entries import Entry, Row, Unit
from bench.peers.fio import ENGINES
from bench.peers.fio import why_absent as no_fio
from bench.peers.redis import why_absent as no_redis
from bench.sizes import Sizes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder with a name short enough for a unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="ob-") as folder:
        yield Path(folder)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench", "--quick", "--no-peers", *arguments]


def environment(scratch: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "sidecar"), "TMPDIR": str(scratch)}


def measured(tmp_path: Path, scratch: Path, *parts: str) -> dict[str, Any]:
    """Entries of a quick run, which leaves nothing behind."""
    result = tmp_path / "bench.json"
    done = subprocess.run(
        command("--result", str(result), *parts),
        cwd=ROOT,
        env=environment(scratch),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(scratch.iterdir()) == []
    entries: dict[str, Any] = json.loads(result.read_text())["entries"]
    for entry in entries.values():
        for row in (entry, *entry["rows"]):
            # so few blocks weigh less than an agent's own ups and downs
            assert row["value"] > 0 or row["name"] == "bytes_per_block/adopted", row
            assert all(ratio > 0 for ratio in row["ratios"].values()), row
        assert entry["how"]
    return entries


@pytest.mark.timeout(300)  # a dozen processes on a busy machine
def test_loads_and_stores_are_held_against_memcpy_and_whoever_is_here(
    tmp_path: Path, scratch: Path
) -> None:
    entries = measured(tmp_path, scratch, "load", "store")

    names = {"load_4mib", "load_16mib", "store_4mib", "store_16mib", "load_two_clients"}
    assert entries.keys() == names
    for name in names - {"load_two_clients"}:
        peers = {"memcpy"} if no_redis() else {"memcpy", "redis"}
        assert entries[name]["peers"].keys() == peers
        assert {"mooncake", "lmcache_mp"} <= entries[name]["not_measured"].keys()
        assert [row["name"] for row in entries[name]["rows"]] == [f"{name}/16KiB-pages"]
    assert entries["load_two_clients"]["peers"].keys() == {"memcpy_2_threads"}


@pytest.mark.timeout(300)
def test_lookups_are_timed_for_one_client_and_four_with_and_without_disk_traffic(
    tmp_path: Path, scratch: Path
) -> None:
    entries = measured(tmp_path, scratch, "lookup")

    assert entries.keys() == {"lookup_128_p50", "lookup_128_p99"}
    p50, p99 = entries["lookup_128_p50"], entries["lookup_128_p99"]
    assert p99["value"] >= p50["value"]
    assert {row["name"].partition("/")[2] for row in p50["rows"]} == {
        "1-client-no-disk",
        "4-clients-no-disk",
        "1-client-and-disk",
        "4-clients-paced-and-disk",
        "1-client-and-disk-by-socket",
        "4-clients-and-disk-by-socket",
    }


@pytest.mark.timeout(300)
def test_the_disk_is_read_written_and_both_beside_fio(tmp_path: Path, scratch: Path) -> None:
    entries = measured(tmp_path, scratch, "disk")

    assert entries.keys() == {"disk_read", "disk_write", "disk_mixed"}
    peers = {row for entry in entries.values() for row in entry["peers"]}
    assert peers == (set() if no_fio() else {"fio", *(f"fio_{engine}" for engine in ENGINES)})


@pytest.mark.timeout(300)
def test_memory_and_a_restart_are_measured(tmp_path: Path, scratch: Path) -> None:
    entries = measured(tmp_path, scratch, "memory")

    assert entries.keys() == {"rss_idle_mib", "bytes_per_block", "readopt_1m_s"}


def test_a_part_that_fails_is_said_and_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(sizes: Sizes) -> list[Entry]:
        raise RuntimeError(f"{sizes.index_blocks} are too many")

    def whole(_: Sizes) -> list[Entry]:
        return [Entry(Row("rss_idle_mib", 1.0, Unit.MIB), (), "python -m bench memory", "So.")]

    result = tmp_path / "bench.json"
    monkeypatch.setattr(program, "PARTS", {"disk": broken, "memory": whole})
    monkeypatch.setattr(sys, "argv", ["bench", "--result", str(result), "disk", "memory"])

    assert program.main() == 1

    assert (
        "disk could not be measured: RuntimeError: 1000000 are too many" in capsys.readouterr().out
    )
    assert json.loads(result.read_text())["entries"].keys() == {"rss_idle_mib"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_a_bench_that_is_ended(
    tmp_path: Path, scratch: Path, how: signal.Signals
) -> None:
    bench = subprocess.Popen(
        command("--result", str(tmp_path / "bench.json"), "disk"),
        cwd=ROOT,
        env=environment(scratch),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (agents := agents_of(str(scratch))):
        assert bench.poll() is None, "the bench ended before its agent came up"
        time.sleep(0.02)

    bench.send_signal(how)
    bench.wait()

    while agents_of(str(scratch)):  # the test's own limit ends this
        time.sleep(0.02)
    assert agents
    if how == signal.SIGTERM:
        assert list(scratch.iterdir()) == []


def agents_of(mark: str) -> set[int]:
    """Process ids of agents whose command line names `mark`, zombies aside."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended just now
        if "onggi_sidecar" in words and any(mark in word for word in words):
            found.add(int(path.parent.name))
    return found


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_admissions_are_timed_at_the_webhook_and_at_the_api_server(
    tmp_path: Path, scratch: Path
) -> None:
    if reason := servers.load_apiserver().missing():
        pytest.skip(reason)
    entry = measured(tmp_path, scratch, "admission")["admission_p99"]
    median, there = entry["rows"]
    assert median["value"] <= entry["value"]
    assert there["peers"].keys() == {"without an annotation"}
