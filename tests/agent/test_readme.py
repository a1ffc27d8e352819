"""The README's program for buffers of one's own, run as printed against a real agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from agent_process import REPOSITORY, AgentProcess

StartAgent = Callable[..., AgentProcess]
SOCKET = "/dev/shm/onggi/agent.sock"
PATIENT_S = 30.0
"""In place of the client's own deadlines, which a busy machine may miss."""


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
