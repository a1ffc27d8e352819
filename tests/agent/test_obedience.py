"""What an agent does with a directive, and what it says of itself after."""

from typing import Any

import pytest

from onggi_core.engine.events import BudgetSet, ModeSet
from onggi_core.heartbeat import Directive, Mode
from onggi_sidecar.budgets import Budgets
from onggi_sidecar.config import load_config
from onggi_sidecar.figures import make_heartbeat
from onggi_sidecar.obedience import Obedience

MIB = 1024 * 1024
CONFIG = load_config({"memory": "256MiB", "memory_max": "1GiB"}, {})
FIGURES: dict[str, Any] = {
    "epoch": "ab" * 16,
    "mode": "Active",
    "arena_budget_bytes": 256 * MIB,
    "arena_ready_bytes": 256 * MIB,
    "arena_coming_bytes": 0,
    "arena_leaving_bytes": 0,
    "disk_budget_bytes": 0,
    "disk_leaving_bytes": 0,
    "host_used_bytes": 0,
    "disk_used_bytes": 0,
    "hit_host_blocks": 0,
    "hit_disk_blocks": 0,
    "lookup_requests": 0,
    "lookup_blocks": 0,
    "miss_blocks": 0,
    "tokens_saved": 0,
    "evicted_host_blocks": 0,
    "evicted_disk_blocks": 0,
    "errors": {},
    "fingerprints": [],
    "sessions": 0,
    "pending_blocks": 0,
    "demand": {"asked_tokens": 0, "curve": []},
}


def held(obedience: Obedience, **figures: int) -> int:
    beat = make_heartbeat(
        FIGURES | figures, CONFIG, sequence=1, draining=False, told_bytes=obedience.told_bytes
    )
    assert beat.held is not None
    return beat.held.host_bytes // MIB


@pytest.fixture
def obedience() -> Obedience:
    posted: list[BudgetSet | ModeSet] = []
    budgets = Budgets(CONFIG, extents=16, plan=None, post=posted.append)
    return Obedience(budgets, figures=lambda: FIGURES, post=posted.append)


def test_what_was_told_counts_before_the_plane_knows_of_it(obedience: Obedience) -> None:
    """Its figures may be of before; who shares out the node's memory must not believe them."""
    obedience.obey(Directive(Mode.ACTIVE, 5.0, host_bytes=512 * MIB))
    assert held(obedience) == 512


def test_what_has_not_left_yet_counts_after_less_was_told(obedience: Obedience) -> None:
    obedience.obey(Directive(Mode.ACTIVE, 5.0, host_bytes=64 * MIB))
    assert held(obedience) == 256, "the figures are of before"
    after = {"arena_budget_bytes": 64 * MIB, "arena_ready_bytes": 64 * MIB}
    assert held(obedience, **after, arena_leaving_bytes=128 * MIB) == 192
    assert held(obedience, **after) == 64


def test_a_drain_begins_and_ends_with_the_directive(obedience: Obedience) -> None:
    obedience.obey(Directive(Mode.ACTIVE, 5.0, drain=True))
    assert obedience.draining
    obedience.obey(Directive(Mode.ACTIVE, 5.0))
    assert not obedience.draining
