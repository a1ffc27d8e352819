"""A pool's status, from what is known to what is written and when."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_core.heartbeat import Lookups, TierBlocks, TierBytes
from onggi_operator.observe.world import AGENT_KEPT_S
from onggi_operator.plan.allocation import Allocation
from onggi_operator.plan.conditions import Reason, Type
from onggi_operator.plan.events import EVENTS_PER_ROUND_MAX, plan_events
from onggi_operator.plan.nodes import ToldMove
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.plan.rebalance import Why
from onggi_operator.plan.status import plan_status, short_count
from onggi_operator.plan.writes import STRUCTURE_INTERVAL_S, Due, Planned, due_of
from onggi_operator.tenancy import PoolQuota, PoolUse

ROOT = Path(__file__).resolve().parents[2]
NOW = "2026-01-01T02:00:00Z"


def planned(world: Any, now_s: float = 100.0, now: str = NOW) -> Planned:
    (snapshot,) = world.snapshot(now_s=now_s)
    return plan_status(snapshot, now_s=now_s, now=now, node_uids={})


def status_of(world: Any, now_s: float = 100.0, now: str = NOW) -> dict[str, Any]:
    return planned(world, now_s, now).whole()


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


def test_a_pool_that_nobody_asks_for(kit: Any) -> None:
    status = status_of(kit.world())
    assert conditions(status)["Ready"] == ("Unknown", "NoPods")
    assert status["display"]["reason"] == "NoPods"
    assert status["display"]["host"] == status["display"]["hit"] == "-"


def test_a_healthy_pool(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    hits, lookups = TierBlocks(90, 5), Lookups(3, 100, 5)
    world.hear(kit.beat(hits=hits, lookups=lookups, tokens_saved=1_250_000), now_s=99)
    status = status_of(world)
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "Accepted": "True",
        "Injected": "True",
        "Ready": "True",
        "CapacityAllocated": "True",
        "IdentityConsistent": "True",
        "Effective": "True",
        "Draining": "False",
    }
    assert status["display"] == {
        "ready": "1/1",
        "injected": "1/1",
        "host": "0/1Gi",
        "disk": "-",
        "hit": "95%",
        "saved": "1.2M",
        "reason": "AllReady",
    }


def test_skipped_and_missed_pods_are_named_newest_first_and_bounded(kit: Any) -> None:
    pods = [
        kit.pod(f"s{i:02}", kit.SKIPPED, created=f"2026-01-01T00:00:{i:02}Z") for i in range(25)
    ]
    status = status_of(kit.world(*pods, kit.pod("m", None)))
    assert status["pods"]["skipped"] == 25
    assert len(status["skipped"]) == 20
    assert status["skipped"][0]["pod"] == "s24"
    assert status["missed"] == [{"pod": "m", "created": kit.AFTER}]
    (injected,) = [one for one in status["conditions"] if one["type"] == "Injected"]
    assert injected["message"] == (
        "0 of 26 pods have an agent; skipped, with a reason on each: s00, s01, s02 and 22 more;"
        " made while the webhook was away: m."
    )


@pytest.mark.parametrize(
    ("running", "heard_at_s", "ready"),
    [
        (False, None, ("False", "AgentsStarting")),
        (True, None, ("False", "AgentsSilent")),
        (True, 69.0, ("False", "AgentsSilent")),
        (True, 70.0, ("True", "AllReady")),
    ],
)
def test_an_agent_is_ready_while_it_reports(
    kit: Any, running: bool, heard_at_s: float | None, ready: tuple[str, str]
) -> None:
    world = kit.world(kit.pod("one", running=running))
    if heard_at_s is not None:
        world.hear(kit.beat(), now_s=heard_at_s)
    assert conditions(status_of(world))["Ready"] == ready


def test_an_operator_that_starts_anew_believes_the_last_one_until_it_has_listened(
    kit: Any,
) -> None:
    world = kit.world(kit.pod("one"))
    world.hear(kit.beat(), now_s=99)
    written = status_of(world)
    again = kit.World({("team-a", "one"): kit.pod("one")}, started=kit.AFTER, started_s=200.0)
    again.see_pool(kit.body(status=written))
    assert conditions(status_of(again, now_s=230))["Ready"] == ("True", "AllReady")
    assert conditions(status_of(again, now_s=231))["Ready"] == ("False", "AgentsSilent")


def test_two_kinds_of_engine_are_told_and_two_ranks_of_one_are_not(kit: Any) -> None:
    world = kit.world(kit.pod("one"), kit.pod("two"))
    ranks = ("ab" * 16, "cd" * 16)
    world.hear(kit.beat("one", fingerprints=ranks), now_s=99)
    world.hear(kit.beat("two", fingerprints=ranks[::-1]), now_s=99)
    assert conditions(status_of(world))["IdentityConsistent"] == ("True", "OneFingerprint")
    world.hear(kit.beat("two", fingerprints=("ef" * 16,)), now_s=99)
    status = status_of(world)
    assert conditions(status)["IdentityConsistent"] == ("False", "FingerprintsDiffer")
    assert status["display"]["reason"] == "FingerprintsDiffer"


def test_a_transition_time_moves_with_the_status_alone(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    first = status_of(world)
    world.see_pool(kit.body(status=first))
    again = status_of(world, now="2026-01-01T03:00:00Z")
    assert again == first
    world.hear(kit.beat(), now_s=100)
    later = status_of(world, now="2026-01-01T03:00:00Z")
    moved = {one["type"]: one["lastTransitionTime"] for one in later["conditions"]}
    assert moved["Injected"] == NOW
    assert moved["Ready"] == "2026-01-01T03:00:00Z"


def test_a_pool_of_a_later_version_is_told_and_the_rest_goes_on(kit: Any) -> None:
    status = status_of(kit.world(pool=kit.body(spec={"mode": "Turbo"})))
    assert conditions(status)["Accepted"] == ("False", "Unreadable")


def test_pods_on_their_way_out_are_not_counted(kit: Any) -> None:
    world = kit.world(kit.pod("old", deleting=True), kit.pod("new"))
    assert status_of(world)["pods"]["matched"] == 1


def test_only_living_agents_hold_capacity_and_the_silent_are_forgotten(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    world.hear(kit.beat("one", capacity=TierBytes(5, 7)), now_s=99)
    world.hear(kit.beat("gone", capacity=TierBytes(5, 7), tokens_saved=3), now_s=99)
    status = status_of(world)
    assert status["capacity"] == {"hostBytes": 5, "diskBytes": 7}
    assert status["tokensSaved"] == 3
    later = status_of(world, now_s=100 + AGENT_KEPT_S)
    assert [agent["pod"] for agent in later["agents"]] == ["one"]
    assert later["tokensSaved"] == 3


def test_many_agents_report_less_often_and_may_be_silent_for_longer(kit: Any) -> None:
    pods = [kit.pod(f"p{i}") for i in range(9000)]
    world = kit.world(*pods)
    assert world.report_interval_s() == 5
    for pod in pods:
        world.hear(kit.beat(pod.name), now_s=99)
    assert world.report_interval_s() == 18
    (snapshot,) = world.snapshot(now_s=100)
    assert snapshot.fresh_s == 54


def test_a_pool_made_anew_under_an_old_name_starts_from_nothing(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    world.hear(kit.beat(tokens_saved=9), now_s=99)
    world.see_pool(kit.body(metadata={"uid": "pool-2"}))
    assert status_of(world)["tokensSaved"] == 0


def test_what_people_act_on_is_written_at_once_and_counters_in_their_time(kit: Any) -> None:
    world = kit.world(kit.pod("one"))
    world.hear(kit.beat(), now_s=99)
    same = planned(world)
    present = same.whole()
    world.hear(kit.beat(tokens_saved=5), now_s=100)
    counted = planned(world)

    def why(wanted: Planned, since_s: float) -> Due | None:
        found = due_of(
            wanted,
            present,
            since_write_s=since_s,
            happened_after_s=STRUCTURE_INTERVAL_S,
            counted_after_s=30,
        )
        assert found is None or found[1] == wanted.whole()
        return found[0] if found is not None else None

    assert why(same, float("inf")) is None
    assert why(counted, 29.9) is None
    assert why(counted, 30) is Due.COUNTED
    world.see_pool(kit.body(metadata={"generation": 2}, status=present))
    changed = planned(world)
    assert why(changed, STRUCTURE_INTERVAL_S / 2) is None
    assert why(changed, STRUCTURE_INTERVAL_S) is Due.HAPPENED


def test_each_pod_is_told_once_and_a_round_is_bounded(kit: Any) -> None:
    pods = [kit.pod(f"p{i}", kit.SKIPPED) for i in range(30)]
    told: set[str] = set()
    first = plan_events(pods, told)
    assert len(first) == EVENTS_PER_ROUND_MAX
    told |= {event.about.uid for event in first}
    second = plan_events(pods, told)
    assert len(second) == 10
    told |= {event.about.uid for event in second}
    assert plan_events(pods, told) == ()


def test_an_injected_pod_needs_no_event(kit: Any) -> None:
    assert plan_events([kit.pod("one"), kit.pod("two", None, deleting=True)], set()) == ()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1250, "1.2k"), (123_456, "123k"), (5 * 10**9, "5G")],
)
def test_large_counts_are_short(count: int, text: str) -> None:
    assert short_count(count) == text


def test_conditions_and_reasons_are_words(kit: Any) -> None:
    for word in (*Type, *Reason):
        assert word.value.isalpha()
        assert word.value[0].isupper()


def test_the_schema_has_what_is_written_and_no_more(kit: Any) -> None:
    """The API server drops what it does not know without a word, and a field that nobody writes is
    a lie."""
    disk = {"max": "4Gi", "medium": "HostPath", "path": "/data"}
    tiers = [*kit.body()["spec"]["tiers"], {"type": "LocalDisk", "localDisk": disk}]
    pods = (kit.pod("one"), kit.pod("s", kit.SKIPPED), kit.pod("m", None))
    world = kit.world(*pods, pool=kit.body(spec={"tiers": tiers}))
    world.hear(kit.beat(capacity=TierBytes(8, 8), used=TierBytes(4, 4)), now_s=99)
    (snapshot,) = world.snapshot(now_s=100)
    move = ToldMove("n1", "u", "team-a", "one", "chat", 1, 2, Why.ROOM, "there is room", True)
    before = {"node": "n2", "nodeUID": "b", "folders": 1, "agents": 0}
    status = plan_status(
        replace(snapshot, status={"nodes": [before]}),
        now_s=100,
        now=NOW,
        node_uids={"n1": "a", "n2": "b"},
        moves=[move],
        allocated=Allocation(quota=QuotaShare(PoolQuota(2, 2), PoolUse(1, 1), {}, 1)),
    ).whole()
    text = (ROOT / "crds/v1alpha1/kvcachepools.yaml").read_text()
    schema = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(said(status)) == set(known(schema["properties"]["status"]))


def said(value: Any, path: str = "") -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            for name, child in item.items():
                yield from said(child, f"{path}.{name}")
        else:
            yield path


def known(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, child in schema.get("items", schema).get("properties", {}).items():
        if "properties" in child or "items" in child:
            yield from known(child, f"{path}.{name}")
        else:
            yield f"{path}.{name}"
