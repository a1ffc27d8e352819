"""The engine in simulated worlds: any order, any fault, and nothing that must hold ever breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.sim.config import ANY, CONFIGS
from tests.sim.runner import run, shrink

from onggi_core.engine import leaving

ROOT = Path(__file__).resolve().parents[2]
SEEDS, STEPS = 4, 1300
"""For each configuration: 57,000 steps in all, in some ten seconds."""
SOAK_SEEDS, SOAK_STEPS = 24, 4000
"""1,056,000 steps."""

MUST_HAPPEN = {
    "calm": {"promise tried", "read from disk", "evicted from the arena"},
    "usual": {"refusal", "client died", "corrupt", "budget set"},
    "memory": {"evicted from the arena", "extent released"},
    "cramped": {"evicted from the disk", "corrupt"},
    "hostile": {"refusal", "lease_ended", "clock jumped"},
    "shrinking": {"extent released", "segment released", "extent touched again"},
    "restarts": {"power lost", "reordered", "torn", "agent stopped", "block adopted"},
    "sick-disk": {"disk hung", "eio", "lost_write", "write_fault"},
    "roomy": {"read from disk"},
    "deaths": {"client died", "session ended"},
    ANY: set(),
}


def live(config: str, seeds: range, steps: int) -> Counter[str]:
    """Runs the worlds of some seeds; what happened in them."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        ended = run(seed, config, steps)
        assert not ended.checker, shrink(ended).report()
        assert ended.steps >= steps
        happened += ended.happened
    return happened


@pytest.mark.parametrize("config", [*CONFIGS, ANY])
def test_nothing_breaks(config: str) -> None:
    happened = live(config, range(SEEDS), STEPS)
    assert not sorted(MUST_HAPPEN[config] - set(happened))


@pytest.mark.parametrize("config", ["deaths", "hostile", "restarts"])
def test_nothing_breaks_where_what_clients_let_go_of_goes_page_by_page(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores and loads here are smaller than the part of them that one step takes apart."""
    monkeypatch.setattr(leaving, "PART", 1)
    monkeypatch.setattr(leaving, "PINS_A_PAGE", 1)
    live(config, range(100, 100 + SEEDS), STEPS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("config", [*CONFIGS, ANY])
def test_nothing_breaks_for_long(config: str) -> None:
    happened = live(config, range(1000, 1000 + SOAK_SEEDS), SOAK_STEPS)
    assert not sorted(MUST_HAPPEN[config] - set(happened))


def test_a_seed_is_a_run_in_every_process() -> None:
    """Whatever Python's hash seed is: no set's order and no address decides anything."""
    script = (
        "from tests.sim.world import World\n"
        "for name in ('usual', 'any'):\n"
        "    world = World(5, name); world.trace.hashing = True; world.run(800)\n"
        "    print(world.trace.digest)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(said[0].split())) == 2
