"""Events on pools: told when something turns, and not while it stays."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onggi_operator.plan.events import TELL_AGAIN_S, TROUBLE, Tell, Weight, plan_pool_events
from onggi_operator.plan.status import plan_status

NOW = "2026-01-01T01:00:10Z"


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


class Round:
    """A round of the controller: the status is planned, told, and then is what the pool says."""

    def __init__(self, kit: Any, world: Any) -> None:
        self.kit, self.world = kit, world
        self.told: dict[tuple[str, str], float] = {}

    def go(self, now_s: float, now: str = NOW) -> list[Tell]:
        (pool,) = self.world.snapshot(now_s=now_s)
        status = plan_status(pool, now_s=now_s, now=now, node_uids={}).whole()
        events = plan_pool_events(pool, status["conditions"], self.told, now_s=now_s)
        self.told |= {(pool.uid, event.reason): now_s for event in events}
        self.world.see_pool(self.kit.body(status=status))
        return list(events)


def reasons(events: list[Tell]) -> list[tuple[str, str]]:
    return [(event.weight.value, event.reason) for event in events]


def test_a_pool_that_starts_well_needs_no_event(kit: Any) -> None:
    world = kit.world(kit.pod("one", running=False))
    rounds = Round(kit, world)
    assert rounds.go(100) == []
    world.hear(kit.beat(), now_s=101)
    assert rounds.go(102) == []


def test_a_silent_agent_is_told_once_and_its_return_once(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    rounds = Round(kit, world)
    world.hear(kit.beat(), now_s=100)
    assert rounds.go(100) == []
    (event,) = rounds.go(140)
    assert (event.weight, event.reason) == (Weight.WARNING, "AgentsSilent")
    assert event.message == "0 of 1 agents report; running but silent: one."
    assert (event.about.kind, event.about.name, event.about.uid) == (
        "KVCachePool", "chat", "pool-1",
    )  # fmt: skip
    assert rounds.go(142) == []
    world.hear(kit.beat(), now_s=143)
    assert reasons(rounds.go(144)) == [("Normal", "AllReady")]
    assert rounds.go(146) == []


def test_what_comes_and_goes_is_told_once_in_ten_minutes(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    rounds = Round(kit, world)
    counted = 0
    for minute in range(20):
        world.hear(
            kit.beat(errors={"disk_unavailable": 1} if minute % 2 else {}), now_s=60.0 * minute
        )
        counted += len(rounds.go(60.0 * minute))
    assert counted == 4  # trouble and its end, twice
    assert TELL_AGAIN_S == 600


def test_an_operator_that_starts_anew_tells_nothing_twice(kit: Any) -> None:
    world = kit.world(kit.pod("one", kit.SKIPPED))
    rounds = Round(kit, world)
    assert reasons(rounds.go(100)) == [("Warning", "PodsSkipped")]
    (pool,) = world.snapshot(now_s=200)
    status = plan_status(pool, now_s=200, now="2026-01-01T02:00:00Z", node_uids={}).whole()
    assert plan_pool_events(pool, status["conditions"], {}, now_s=0) == ()


def test_the_same_turn_has_the_same_name_and_another_one_another(kit: Any) -> None:
    def event(now: str, status: Mapping[str, Any]) -> Tell:
        world = kit.world(kit.pod("one", kit.SKIPPED), pool=kit.body(status=status))
        (pool,) = world.snapshot(now_s=100)
        wanted = plan_status(pool, now_s=100, now=now, node_uids={}).whole()["conditions"]
        (found,) = plan_pool_events(pool, wanted, {}, now_s=100)
        return found

    assert event(NOW, {}).name == event(NOW, {}).name
    assert event(NOW, {}).name != event("2026-01-01T02:00:00Z", {}).name
    assert event(NOW, {}).name.startswith("chat.")


def test_a_drain_is_told_when_it_begins_and_when_it_is_over(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    rounds = Round(kit, world)
    world.hear(kit.beat(), now_s=100)
    rounds.go(100)
    world.hear(kit.beat(draining=True), now_s=101)
    assert reasons(rounds.go(101)) == [("Normal", "AgentsDraining")]
    world.hear(kit.beat(), now_s=102)
    assert reasons(rounds.go(103)) == [("Normal", "NothingDrains")]


def test_every_warning_is_of_a_condition_that_is_not_as_it_should_be() -> None:
    """A table that tells of a good reason would tell of every roll-out."""
    assert {reason.value for reason, weight in TROUBLE.items() if weight is Weight.WARNING} == {
        "Unreadable", "PodsSkipped", "PodsMissed", "AgentsSilent", "DiskUnavailable",
        "BelowMin", "QuotaExceeded", "EnginesNotAttached", "NothingFound",
    }  # fmt: skip


def test_the_docs_list_what_is_told() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text()
    (line,) = re.findall(r"A pool that turns to one of these reasons .*? over: (.*?)\. What", page)
    assert re.findall(r"`(\w+)`", line) == [reason.value for reason in TROUBLE]
