"""Processes that store and load patterned pages beside a test, and their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agent_process import REPOSITORY, WAIT_S

WORKERS = (("a" * 16, 65_536), ("a" * 16, 65_536), ("b" * 16 + "," + "c" * 16, 40_000))
"""Two engines of one model, and one of two ranks with pages of an odd size."""

StartWorker = Callable[[int, str, int], subprocess.Popen[str]]


def start_worker_on(
    socket: Path, seed: int, fingerprints: str, page_bytes: int
) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("load_worker.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(socket), str(seed), fingerprints, str(page_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "sidecar")},
    )


def stop_worker(worker: subprocess.Popen[str]) -> dict[str, int]:
    out, trouble = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 0, f"{out}\n{trouble}"
    report: dict[str, int] = json.loads(out)
    return report
