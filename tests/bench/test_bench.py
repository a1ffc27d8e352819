"""The whole bench, with sizes that say nothing about speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.redis import why_absent

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder with a name short enough for a unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="ob-") as folder:
        yield Path(folder)


@pytest.mark.timeout(300)  # half a dozen processes on a busy machine
def test_every_row_has_a_value_and_a_peer_and_nothing_is_left(
    tmp_path: Path, scratch: Path
) -> None:
    result = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--result", str(result)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "sidecar"), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(result.read_text())
    names = {row["name"] for row in rows}
    assert {"load/host/1024KiB-pages/16MiB", "store/host/256KiB-pages/1MiB"} <= names
    assert {"lookup/128-blocks/4-clients/p99", "load/disk/1024KiB-pages/16MiB"} <= names
    peers = {row["peer"].split()[0] for row in rows}
    if why_absent():
        assert "without Redis" in done.stdout
    else:
        assert {"memcpy,", "redis", "O_DIRECT"} == peers
        assert all(row["ratio"] > 0 for row in rows)
    assert all(row["value"] > 0 for row in rows)
    assert list(scratch.iterdir()) == []
