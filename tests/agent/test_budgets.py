"""Live budgets, up to what the engine is told: who says what, and what becomes of it."""

from collections.abc import Callable
from typing import Any

import pytest

from onggi_core.engine.events import BudgetSet
from onggi_sidecar import budgets
from onggi_sidecar.agreement import RUNNING
from onggi_sidecar.budgets import Budgets
from onggi_sidecar.config import AgentConfig, ConfigRefused, load_config
from onggi_sidecar.disk.budget import nominal_segment_bytes, plan_disk

MIB = 1024 * 1024
GIVEN = {
    "memory": "256MiB",
    "memory_max": "1GiB",
    "disk": "1GiB",
    "disk_max": "2GiB",
    "disk_path": "/d",
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events in the log."""
    told: list[str] = []

    def note(name: str, sentence: str, **_: Any) -> None:
        told.append(f"{name}: {sentence}")

    monkeypatch.setattr(budgets, "event", note)
    monkeypatch.setattr(budgets, "warn", note)
    return told


@pytest.fixture
def posted() -> list[BudgetSet]:
    return []


@pytest.fixture
def make(posted: list[BudgetSet], told: list[str]) -> Callable[..., Budgets]:
    def make_one(extents: int = 16, disk: bool = True) -> Budgets:
        config = load_config(GIVEN, {})
        plan = plan_disk(2048 * MIB, nominal_segment_bytes(2048 * MIB)) if disk else None
        return Budgets(config, extents=extents, plan=plan, post=posted.append)

    return make_one


def test_an_agent_begins_with_what_it_was_asked_for_and_not_with_the_most(
    make: Callable[..., Budgets],
) -> None:
    present = make().present
    assert present.extents == 4
    assert present.segments * 64 * MIB <= 1024 * MIB
    assert present.segments == 15  # and a page table cut for 2 GiB


def test_what_the_operator_says_is_told_once(
    make: Callable[..., Budgets], posted: list[BudgetSet], told: list[str]
) -> None:
    made = make()
    made.set(128 * MIB, None, who="the operator")
    made.set(128 * MIB, None, who="the operator")
    made.set(None, None, who="the operator")
    assert posted == [BudgetSet(2, 15)]
    assert told == [
        "budget_set: the operator asks for 134217728 bytes (128MiB) of memory and 1073741824 bytes "
        "(1GiB) of disk; going to 134217728 bytes (128MiB) of memory and 1006632960 bytes (960MiB) "
        "of disk, in 15 segments"
    ]


@pytest.mark.parametrize(
    ("host", "disk", "extents", "segments"),
    [
        (0, 0, 1, 0),
        (1, 1, 1, 0),
        (64 * MIB, 100 * MIB, 1, 1),
        (1023 * MIB, 512 * MIB, 15, 7),
        (2**60, 2**60, 16, 31),
    ],
)
def test_what_does_not_fit_is_cut_down(
    make: Callable[..., Budgets],
    posted: list[BudgetSet],
    host: int,
    disk: int,
    extents: int,
    segments: int,
) -> None:
    make().set(host, disk, who="somebody")
    assert posted == [BudgetSet(extents, segments)]


def test_without_a_disk_tier_its_budget_is_nothing(
    make: Callable[..., Budgets], posted: list[BudgetSet]
) -> None:
    make(disk=False).set(512 * MIB, 512 * MIB, who="somebody")
    assert posted == [BudgetSet(8, 0)]


def test_a_changed_configuration_sets_budgets_and_names_what_takes_a_restart(
    make: Callable[..., Budgets], posted: list[BudgetSet], told: list[str]
) -> None:
    def changed() -> AgentConfig:
        return load_config({**GIVEN, "memory": "512MiB", "mode": "Paused", "http_port": "1"}, {})

    made = make()
    made.read_again(changed)
    assert posted == [BudgetSet(8, 15)]
    assert told[1] == "restart_needed: a restart is needed for the new http_port, mode"
    made.read_again(changed)
    assert posted == [BudgetSet(8, 15)]


def test_a_wrong_configuration_changes_nothing(
    make: Callable[..., Budgets], posted: list[BudgetSet], told: list[str]
) -> None:
    make().read_again(lambda: load_config({**GIVEN, "memory": "lots"}, {}))
    assert posted == []
    assert told[0].startswith(
        "config_refused: the configuration was not taken over: memory: 'lots'"
    )


@pytest.mark.parametrize(("disk", "segments"), [("64MiB", 0), ("128MiB", 1), ("0", 0)])
def test_a_running_disk_tier_may_shrink_to_any_part_of_what_it_was_cut_for(
    make: Callable[..., Budgets], posted: list[BudgetSet], disk: str, segments: int
) -> None:
    smaller = {**GIVEN, "disk": disk}
    make().read_again(lambda: load_config(smaller, {}, context=RUNNING))
    assert posted == [BudgetSet(4, segments)]
    with pytest.raises(ConfigRefused, match="disk_max"):
        load_config(smaller, {})
