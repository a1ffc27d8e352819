"""docs/library.md: its programs run, in order and as printed; so does the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "library.md"
EXAMPLE = ROOT / "examples" / "02-a-context-that-does-not-fit" / "example.py"


def test_the_programs_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And print what stands behind what they print, "..." being anything."""
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) >= 3
    names: dict[str, Any] = {}
    said = 0
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
        printed = capsys.readouterr().out
        for expected in re.findall(r"^ *print\(\w+\)  # (.*)$", program, re.MULTILINE):
            pattern = ".*".join(map(re.escape, expected.split("...")))
            assert re.search(f"^{pattern}", printed, re.MULTILINE), printed
            said += 1
    assert said >= 4


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (program,) = re.findall(
        r"^```python\n(import torch\nfrom onggi import KVCacheManager.*?)^```", text, re.M | re.S
    )
    assert '"/var/tmp"' in program
    program = program.replace('"/var/tmp"', repr(str(tmp_path)))
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    assert names["k"].shape == (1, 8, 1024, 64)
    assert (names["v"] == 0).all()


def test_the_example_runs_and_everything_is_the_same() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--steps", "48"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "48 steps, 48MiB" in done.stdout
    told = [line[:22] for line in done.stdout.splitlines()[1:9:4]]
    assert told == ["put    12 of 48 steps;", "read   12 of 48 steps;"]
    assert done.stdout.endswith("example: ok identical=48/48\n")
