"""The README's first agent, and its program for buffers of one's own, run as printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import REPOSITORY, AgentProcess

StartAgent = Callable[..., AgentProcess]
SOCKET = "/dev/shm/onggi/agent.sock"
DISK = "~/onggi-disk"
PATIENT_S = 30.0
"""In place of the client's own deadlines, which a busy machine may miss."""


def test_the_agent_starts_as_printed(start: StartAgent, tmp_path: Path) -> None:
    text = (REPOSITORY / "README.md").read_text()
    (line,) = re.findall(r"^    onggi agent (.*)$", text, re.MULTILINE)
    assert f"\n    mkdir -p {DISK}\n" in text
    (tmp_path / "disk").mkdir()
    words = shlex.split(line.replace(DISK, str(tmp_path / "disk")))
    place = words.index("--socket")
    assert words[place : place + 2] == ["--socket", SOCKET]  # which `start` says for this test
    running = start(*words[:place], *words[place + 2 :], "--extent", "64MiB")
    assert 0.9 < running.wait_for("disk_ready")["most_bytes"] / (4 << 30) <= 1
    running.wait_for("listening")
    assert running.end() == 0


def test_the_program_for_ones_own_buffers_runs(
    start: StartAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (REPOSITORY / "README.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (program,) = [one for one in programs if "Client(" in one]
    running = start("--memory", "64MiB")
    running.wait_for("listening")
    running.wait_for("arena_ready")
    for printed, here in (
        (SOCKET, str(running.socket_path)),
        ("wait_s=5.0", f"wait_s={PATIENT_S}"),
        ('engine="mine")', f'engine="mine", deadline_s={PATIENT_S})'),
    ):
        assert printed in program
        program = program.replace(printed, here)
    names: dict[str, Any] = {}
    exec(program, names)
    names["client"].close()
    assert capsys.readouterr().out == "Stored(stored=16, existing=0, refused=0)\n"
