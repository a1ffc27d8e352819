"""Conditions that tell whether a pool is worth what it takes: each status with its reason."""

from typing import Any

import pytest

from onggi_core.heartbeat import Lookups, TierBlocks, TierBytes
from onggi_operator.plan.allocation import Allocation
from onggi_operator.plan.findings import ATTACH_S, NOTHING_FOUND_BLOCKS
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.plan.status import plan_status
from onggi_operator.tenancy import PoolQuota, PoolUse

GI = 1 << 30
MIB = 1 << 20


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


def look(world: Any, *, now_s: float = 100.0, now: str = "2026-01-01T01:00:10Z") -> dict[str, Any]:
    (snapshot,) = world.snapshot(now_s=now_s)
    return plan_status(snapshot, now_s=now_s, now=now, node_uids={}).whole()


def found(status: dict[str, Any], kind: str) -> tuple[str, str]:
    (one,) = [one for one in status["conditions"] if one["type"] == kind]
    return one["status"], one["reason"]


def told(status: dict[str, Any], kind: str) -> str:
    return str(next(one["message"] for one in status["conditions"] if one["type"] == kind))


def one_agent(kit: Any, *, spec: dict[str, Any] | None = None, **changes: Any) -> Any:
    world = kit.world(kit.pod("one"), pool=kit.body(spec=spec or {}))
    world.hear(kit.beat(**changes), now_s=99)
    return world


def test_before_any_report_nobody_claims_to_know(kit: Any) -> None:
    status = look(kit.world(kit.pod("one")))
    for kind in ("CapacityAllocated", "Effective", "Draining"):
        assert found(status, kind) == ("Unknown", "NoReports")


def test_memory_that_is_still_coming_is_told_until_what_was_requested_is_there(kit: Any) -> None:
    spec = {
        "tiers": [{"type": "Memory", "memory": {"min": "256Mi", "max": "1Gi", "hugepages": "Auto"}}]
    }

    def allocated(ready_bytes: int, budget_bytes: int) -> tuple[str, str]:
        capacity = TierBytes(budget_bytes, 0)
        world = one_agent(kit, spec=spec, capacity=capacity, arena_ready_bytes=ready_bytes)
        return found(look(world), "CapacityAllocated")

    assert allocated(192 * MIB, GI) == ("False", "MemoryGrowing")
    assert allocated(256 * MIB, GI) == ("True", "Allocated")  # grows towards max, lacks nothing
    assert allocated(64 * MIB, 64 * MIB) == ("True", "Allocated")  # a pod that asked for less


def test_an_agent_that_cannot_use_its_disk_is_named(kit: Any) -> None:
    status = look(one_agent(kit, errors={"disk_unavailable": 1}))
    assert found(status, "CapacityAllocated") == ("False", "DiskUnavailable")
    assert told(status, "CapacityAllocated") == (
        "Agents that cannot use their disk, and say why in their logs: one."
    )
    assert status["display"]["reason"] == "DiskUnavailable"


def test_a_pool_is_effective_once_blocks_are_found(kit: Any) -> None:
    early = look(one_agent(kit, lookups=Lookups(3, NOTHING_FOUND_BLOCKS - 1, 1)))
    assert found(early, "Effective") == ("Unknown", "TooEarly")
    assert early["display"]["reason"] == "AllReady"
    never = look(one_agent(kit, lookups=Lookups(3, NOTHING_FOUND_BLOCKS, 1)))
    assert found(never, "Effective") == ("False", "NothingFound")
    assert never["display"]["reason"] == "NothingFound"
    for hits in (TierBlocks(1, 0), TierBlocks(0, 1)):
        lookups = Lookups(3, NOTHING_FOUND_BLOCKS, 1)
        status = look(one_agent(kit, hits=hits, lookups=lookups))
        assert found(status, "Effective") == ("True", "BlocksFound")


def test_what_an_earlier_life_found_does_not_hide_what_fails_today(kit: Any) -> None:
    world = one_agent(kit, hits=TierBlocks(500, 0), lookups=Lookups(9, 600, 100))
    assert found(look(world), "Effective") == ("True", "BlocksFound")
    world.hear(kit.beat(epoch="ff" * 8, lookups=Lookups(99, NOTHING_FOUND_BLOCKS, 1)), now_s=99.5)
    assert found(look(world), "Effective") == ("False", "NothingFound")
    assert look(world)["hits"]["hostBlocks"] == 500


@pytest.mark.parametrize(
    ("after_s", "clients", "requests", "expected"),
    [
        (ATTACH_S, 0, 0, ("Unknown", "TooEarly")),
        (ATTACH_S + 1, 0, 0, ("False", "EnginesNotAttached")),
        (ATTACH_S + 1, 1, 0, ("Unknown", "TooEarly")),
        (ATTACH_S + 1, 0, 1, ("Unknown", "TooEarly")),  # was there, and restarts
    ],
)
def test_an_engine_that_never_speaks_is_told_after_a_quarter_of_an_hour(
    kit: Any, after_s: int, clients: int, requests: int, expected: tuple[str, str]
) -> None:
    world = one_agent(kit, clients=clients, lookups=Lookups(requests, 0, 0))
    minutes, seconds = divmod(after_s, 60)
    status = look(world, now=f"2026-01-01T01:{minutes:02}:{seconds:02}Z")
    assert found(status, "Effective") == expected
    if expected[0] == "False":
        assert told(status, "Effective") == (
            "Agents that no engine has spoken to since they started: one."
            " `onggi doctor POD` says why."
        )


@pytest.mark.parametrize(("mode", "reason"), [("Observe", "Observing"), ("Paused", "Paused")])
def test_a_mode_that_stores_nothing_is_no_trouble_and_is_shown(
    kit: Any, mode: str, reason: str
) -> None:
    status = look(one_agent(kit, spec={"mode": mode}))
    assert found(status, "Effective") == ("Unknown", reason)
    assert status["display"]["reason"] == reason


def test_a_drain_is_shown_while_it_lasts_unless_something_is_wrong(kit: Any) -> None:
    world = one_agent(kit, draining=True)
    status = look(world)
    assert found(status, "Draining") == ("True", "AgentsDraining")
    assert status["display"]["reason"] == "AgentsDraining"
    world.hear(kit.beat(draining=True, errors={"disk_unavailable": 1}), now_s=99)
    assert look(world)["display"]["reason"] == "DiskUnavailable"
    world.hear(kit.beat(), now_s=99)
    assert found(look(world), "Draining") == ("False", "NothingDrains")
    assert look(world)["display"]["reason"] == "AllReady"


def test_no_message_moves_while_only_counters_do(kit: Any) -> None:
    """A status is written at once when a condition changes; counters wait for their interval."""
    world = one_agent(kit, hits=TierBlocks(1, 1), lookups=Lookups(1, 20_000, 1), draining=True)
    first = look(world)
    world.hear(
        kit.beat(
            hits=TierBlocks(70, 9), lookups=Lookups(9, 30_000, 7), draining=True, pending_blocks=9
        ),
        now_s=100,
    )
    assert look(world)["conditions"] == first["conditions"]


# ---- what the ledger tells of the memory


def quota(hard: PoolQuota, **changes: Any) -> QuotaShare:
    return QuotaShare(hard, PoolUse(GI, 0), {}, 0, **changes)


def allocated(world: Any, **known: Any) -> dict[str, Any]:
    (snapshot,) = world.snapshot(now_s=100.0)
    now = "2026-01-01T01:00:10Z"
    return plan_status(
        snapshot, now_s=100.0, now=now, node_uids={}, allocated=Allocation(**known)
    ).whole()


BOUND = PoolQuota(memory_bytes=2 * GI)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, ("True", "Allocated")),
        ({"quota": quota(BOUND)}, ("True", "Allocated")),
        ({"quota": quota(BOUND, reached=True)}, ("True", "QuotaReached")),
        ({"quota": quota(BOUND, reached=True, exceeded=True)}, ("False", "QuotaExceeded")),
        ({"node_full": True}, ("True", "NodeFull")),
        ({"node_full": True, "quota": quota(BOUND, reached=True)}, ("True", "QuotaReached")),
        ({"below_min": frozenset({"uid-one"})}, ("False", "BelowMin")),
        ({"below_min": frozenset({"uid-of-another"})}, ("True", "Allocated")),
    ],
)
def test_allocation_is_told_with_its_reason(
    kit: Any, known: dict[str, Any], expected: tuple[str, str]
) -> None:
    status = allocated(one_agent(kit), **known)
    assert found(status, "CapacityAllocated") == expected
    shown = expected[1] if expected[0] == "False" else "AllReady"
    assert status["display"]["reason"] == shown


def test_who_stays_below_its_min_is_named(kit: Any) -> None:
    status = allocated(one_agent(kit), below_min=frozenset({"uid-one"}))
    assert told(status, "CapacityAllocated") == (
        "Agents that did not get what their pods requested, and say why in their logs: one."
    )


def test_a_quota_is_shown_with_what_is_taken_of_it(kit: Any) -> None:
    status = allocated(one_agent(kit), quota=quota(BOUND))
    assert status["quota"] == {"hard": {"memoryBytes": 2 * GI}, "used": {"memoryBytes": GI}}
    assert allocated(one_agent(kit))["quota"] is None


def test_a_bound_that_was_taken_away_leaves_the_status(kit: Any) -> None:
    """A merge patch only takes away what it names."""
    both = {"memoryBytes": 1, "diskBytes": 1}
    body = kit.body(status={"quota": {"hard": dict(both), "used": dict(both)}})
    world = kit.world(kit.pod("one"), pool=body)
    assert allocated(world, quota=quota(BOUND))["quota"] == {
        "hard": {"memoryBytes": 2 * GI, "diskBytes": None},
        "used": {"memoryBytes": GI, "diskBytes": None},
    }
