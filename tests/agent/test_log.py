"""Lines for programs, and for whoever watches."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys

import pytest
from agent_process import REPOSITORY

from onggi_sidecar.log import JsonLines, PlainLines, event, warn

SAID = """
from onggi_sidecar.log import event, set_up_logging
set_up_logging("info")
event("listening", "serving at a path", socket="/s", clients_max=256)
"""


def lines(formatter: logging.Formatter, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.INFO, "onggi"):
        event("listening", "serving at a path", socket="/s", clients_max=256)
        warn("arena_cut_down", "there is less")
    return [formatter.format(record) for record in caplog.records]


def test_a_program_reads_json(caplog: pytest.LogCaptureFixture) -> None:
    first, second = map(json.loads, lines(JsonLines(), caplog))
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "event": "listening",
        "message": "serving at a path",
        "socket": "/s",
        "clients_max": 256,
    }
    assert (second["level"], second["event"]) == ("warning", "arena_cut_down")


def test_a_person_reads_sentences(caplog: pytest.LogCaptureFixture) -> None:
    first, second = lines(PlainLines(), caplog)
    said = r"\d\d:\d\d:\d\d  serving at a path  \[listening socket=/s clients_max=256\]"
    assert re.fullmatch(said, first)
    assert second.endswith("  warning: there is less  [arena_cut_down]")


def test_which_of_them_depends_on_whether_somebody_watches() -> None:
    command = [sys.executable, "-c", SAID]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "sidecar")}
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert json.loads(piped.stderr)["event"] == "listening"
    terminal, end = pty.openpty()
    try:
        subprocess.run(command, env=environment, stderr=end, timeout=60, check=True)
        watched = os.read(terminal, 4096).decode()
    finally:
        os.close(end)
        os.close(terminal)
    assert "serving at a path  [listening socket=/s clients_max=256]" in watched
