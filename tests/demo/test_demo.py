"""The demo, run whole and stopped half-way."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunningDemo

pytestmark = pytest.mark.timeout(400)  # two processes import torch, perhaps from a cold disk


def test_all_three_runs_say_the_same_and_nothing_is_left(demo: RunningDemo) -> None:
    code = demo.end()

    last = demo.lines[-1]
    assert code == 0, demo.lines
    assert re.fullmatch(r"demo: ok identical=3/3 host_speedup=[\d.]+ disk_speedup=[\d.]+", last)
    assert any("576 of 600" in line for line in demo.lines)
    assert len(demo.folders) == 2
    assert demo.leftovers() == []


@pytest.mark.parametrize("when", ["disk tier", "model: Llama"])
def test_an_interrupt_leaves_nothing_behind(demo: RunningDemo, when: str) -> None:
    """Once while both children start, once while the model computes."""
    demo.read_until(when)
    demo.process.send_signal(signal.SIGINT)
    demo.process.send_signal(signal.SIGINT)  # people press it twice

    assert demo.end() == 130
    assert demo.lines[-1] == "demo: interrupted, nothing is left behind"
    assert len(demo.folders) == 2
    assert demo.leftovers() == []
