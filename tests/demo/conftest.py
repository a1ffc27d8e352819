"""The demo as a user runs it: a command of its own, in the environment that runs the tests."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "01-warm-restart"
LINE_S = 300.0
END_S = 60.0

sys.path.insert(0, str(EXAMPLE))  # the example's own modules, as its script finds them


def _as_from_a_terminal() -> None:
    """A shell that starts the tests in the background has SIGINT ignored, and so would the demo."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class RunningDemo:
    """A demo under way with the smallest sizes that show all of it."""

    def __init__(self, disk_parent: Path) -> None:
        command = [sys.executable, "-u", str(EXAMPLE / "demo.py"), "--tokens", "600"]
        command += ["--layers", "2", "--memory", "128MiB", "--disk", "64MiB"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "sidecar"), "TMPDIR": str(disk_parent)},
            preexec_fn=_as_from_a_terminal,
        )
        self.lines: list[str] = []

    def read_until(self, words: str) -> None:
        assert self.process.stdout is not None
        until_s = time.monotonic() + LINE_S
        while time.monotonic() < until_s:
            line = self.process.stdout.readline()
            if not line:
                break
            self.lines.append(line.rstrip())
            if words in line:
                return
        raise AssertionError(f"never said {words!r}: {self.lines}")

    def end(self) -> int:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait(END_S)

    @property
    def folders(self) -> list[Path]:
        """Where it said its tiers are."""
        return [Path(line.split(" in ")[1]) for line in self.lines if "onggi-demo-" in line]

    def leftovers(self) -> list[str]:
        """Folders that still exist and processes that still name one of them."""
        left = [str(folder) for folder in self.folders if folder.exists()]
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode("utf-8", "replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended while we looked
            if any(str(folder) in word for folder in self.folders for word in words):
                left.append(" ".join(words))
        return left


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[RunningDemo]:
    for library in ("torch", "transformers", "rich"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"the demo needs {library}: install the extra `demo`")
    running = RunningDemo(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()
    if running.process.stdout is not None:
        running.process.stdout.close()
