"""From a node's snapshot to grants, and to the status that tells of them."""

from dataclasses import replace
from typing import Any

import pytest

from onggi_core.heartbeat import TierBytes
from onggi_operator.observe.fleet import AgentSnapshot, NodeSnapshot
from onggi_operator.observe.nodes import CacheNodeView, NodeView
from onggi_operator.observe.pods import AgentSizes
from onggi_operator.plan.allocation import BELOW_MIN_S, NOTHING_KNOWN, gathered, look_at
from onggi_operator.plan.grants import disk_limit_bytes, offered_bytes, plan_node
from onggi_operator.plan.nodes import (
    MEASURED_INTERVAL_S,
    STRUCTURE_INTERVAL_S,
    node_status,
    told_moves,
)
from onggi_operator.plan.rebalance import Why
from onggi_operator.plan.writes import Due, due_of
from onggi_operator.pool import Pool, read_pool

MIB = 1 << 20
NOW_S = 1000.0
TIME = "2026-01-01T00:00:00Z"
NODE = NodeView("n1", "uid-n1", 4096 * MIB, 0, ready=True, leaving=False)
STEEP = ((64 * MIB, 0.1), (512 * MIB, 0.9))
FLAT = ((64 * MIB, 0.1), (512 * MIB, 0.11))


def agent(uid: str, held: int | None = 64, **changes: Any) -> AgentSnapshot:
    made = AgentSnapshot(
        uid=uid,
        namespace="team-a",
        pod=f"pod-{uid}",
        pool="chat",
        sizes=AgentSizes(64 * MIB, 512 * MIB, 0),
        deleting=False,
        gone=False,
        newborn=False,
        heard_s=NOW_S,
        began_s=0.0,
        moved_s=None,
        target_bytes=None,
        granted_bytes=None,
        answered_bytes=None,
        held=None if held is None else TierBytes(held * MIB, 0),
        used=TierBytes(),
        ready_bytes=64 * MIB,
        tokens_per_s=100.0,
        curve=(),
        pending_blocks=0,
        draining=False,
    )
    return replace(made, **changes)


def node(*agents: AgentSnapshot, offer: int | None = 512, **changes: Any) -> NodeSnapshot:
    own = None if offer is None else CacheNodeView("n1", 1, offer * MIB, {})
    return replace(NodeSnapshot(NODE, own, 1024 * MIB, agents, 60.0), **changes)


@pytest.fixture
def pools(status_kit: Any) -> Any:
    def made(**placement: Any) -> dict[tuple[str, str], Pool]:
        body = status_kit.body()
        body["spec"]["placement"].update(placement)
        body["spec"]["tiers"][0]["memory"]["max"] = placement.pop("max", "512Mi")
        return {("team-a", "chat"): read_pool(body)}

    return made


def plan(snapshot: NodeSnapshot, pools: Any, **changes: Any) -> Any:
    return plan_node(snapshot, pools, now_s=NOW_S, fresh_s=30.0, **changes)


def mib(sizes: Any) -> dict[str, int]:
    return {uid: size // MIB for uid, size in sizes.items()}


def test_a_node_offers_what_was_promised_and_a_share_of_what_nobody_asked_for() -> None:
    two = (agent("a"), agent("b"))
    assert offered_bytes(node(*two, offer=None), share=0.5) == (128 + 1536) * MIB
    assert offered_bytes(node(*two, offer=None), share=0.0) == 128 * MIB
    assert offered_bytes(node(*two, offer=700), share=0.5) == 700 * MIB
    assert offered_bytes(node(*two, offer=1), share=0.5) == 128 * MIB


def test_new_agents_get_equal_shares(pools: Any) -> None:
    assert mib(plan(node(agent("a"), agent("b")), pools()).told) == {"a": 256, "b": 256}


def test_a_new_agent_grows_over_the_ramp(pools: Any) -> None:
    """An empty one must not draw what warm ones use."""
    half = agent("a", began_s=NOW_S - 30)
    assert mib(plan(node(half, offer=2048), pools()).told) == {"a": 256}
    new = agent("a", began_s=NOW_S)
    assert mib(plan(node(new, offer=2048), pools()).told) == {"a": 64}
    had = agent("a", 384, began_s=NOW_S)
    assert mib(plan(node(had, offer=2048), pools()).told) == {"a": 384}, "the operator is new"


def test_memory_follows_value_shrinking_first(pools: Any) -> None:
    a = agent("a", 256, target_bytes=256 * MIB, granted_bytes=256 * MIB, curve=STEEP)
    b = replace(a, uid="b", pod="pod-b", curve=FLAT)
    first = plan(node(a, b), pools(step="128Mi"))
    assert mib(first.sharing.sizes) == {"a": 384, "b": 128}
    assert mib(first.told) == {"a": 256, "b": 128}
    assert first.moved == {"a", "b"}
    shrunk = replace(b, target_bytes=128 * MIB, granted_bytes=128 * MIB, held=TierBytes(128 * MIB))
    waits = replace(a, target_bytes=384 * MIB)
    later = plan(node(waits, shrunk, since_look_s=2.0), pools(step="128Mi"))
    assert mib(later.told) == {"a": 384, "b": 128}
    assert not later.looked
    assert later.moved == frozenset()


def test_on_a_node_that_is_not_settled_nobody_is_given_more(pools: Any) -> None:
    """Pods deleted while its kubelet was away may run there still, and hold what they held."""
    assert mib(plan(node(agent("a"), agent("b")), pools(), settled=False).told) == {
        "a": 64,
        "b": 64,
    }
    a = agent("a", 256, target_bytes=256 * MIB, granted_bytes=256 * MIB, curve=STEEP)
    b = replace(a, uid="b", pod="pod-b", curve=FLAT)
    waits = plan(node(a, b), pools(), settled=False)
    assert mib(waits.told) == {"a": 256, "b": 256}
    assert not waits.looked
    assert mib(plan(node(a, b, offer=320), pools(), settled=False).told) == {"a": 256, "b": 64}


def test_no_agent_is_moved_twice_in_an_interval(pools: Any) -> None:
    a = agent("a", 256, target_bytes=256 * MIB, granted_bytes=256 * MIB, curve=STEEP)
    b = replace(a, uid="b", pod="pod-b", curve=FLAT, moved_s=NOW_S - 30)
    assert plan(node(a, b), pools()).moved == frozenset()
    assert plan(node(a, replace(b, moved_s=NOW_S - 61)), pools()).moved == {"a", "b"}


def test_a_dry_run_tells_and_does_nothing(pools: Any) -> None:
    a = agent("a", 256, target_bytes=256 * MIB, granted_bytes=256 * MIB, curve=STEEP)
    b = replace(a, uid="b", pod="pod-b", curve=FLAT)
    snapshot, dry = node(a, b), pools(rebalance="DryRun")
    found = plan(snapshot, dry)
    assert mib(found.told) == {"a": 256, "b": 256}
    moves = told_moves(snapshot, found, dry)
    assert [(one.pod, one.reason, one.dry_run) for one in moves] == [
        ("pod-a", Why.WORTH_MORE, True),
        ("pod-b", Why.WORTH_LESS, True),
    ]
    assert "tokens a second more from the cache" in moves[0].message
    assert plan(snapshot, pools(rebalance="Off")).advised.moves == ()


def test_a_silent_agent_is_charged_and_told_nothing(pools: Any) -> None:
    silent = agent("a", 384, heard_s=NOW_S - 31, granted_bytes=384 * MIB)
    assert mib(plan(node(silent, agent("b")), pools()).told) == {"b": 128}


def test_an_agent_that_was_never_heard_is_charged_its_limit(pools: Any) -> None:
    unheard = agent("a", None, heard_s=None)
    assert mib(plan(node(unheard, agent("b"), offer=640), pools()).told) == {"b": 128}


def test_nothing_is_taken_for_an_agent_that_was_not_heard_yet(pools: Any) -> None:
    """An operator that starts anew hears one after the other."""
    heard, unheard = agent("a", 256, curve=STEEP), agent("b", None, heard_s=None)
    assert mib(plan(node(heard, unheard), pools()).told) == {"a": 256}
    born = replace(unheard, newborn=True)
    assert mib(plan(node(heard, born), pools(step="1Gi")).told) == {"a": 448}


def test_what_was_meant_for_an_agent_while_others_were_unheard_is_shared_again(pools: Any) -> None:
    first, unheard = agent("a"), agent("b", None, heard_s=None)
    meant = plan(node(first, unheard), pools())
    assert mib(meant.sharing.sizes) == {"a": 448}
    assert mib(meant.told) == {"a": 64}
    later = replace(first, target_bytes=448 * MIB, granted_bytes=64 * MIB)
    assert mib(plan(node(later, agent("b")), pools()).told) == {"a": 256, "b": 256}


def test_who_is_leaving_gets_no_more(pools: Any) -> None:
    told = plan(node(agent("a", deleting=True), agent("b", draining=True), agent("c")), pools())
    assert mib(told.told) == {"a": 64, "b": 64, "c": 384}


def test_a_pool_that_gives_less_takes_from_running_agents(pools: Any, status_kit: Any) -> None:
    had = agent("a", 512, target_bytes=512 * MIB, granted_bytes=512 * MIB)
    assert mib(plan(node(had), pools(max="128Mi")).told) == {"a": 128}
    body = status_kit.body()
    disk = {"max": "1Gi", "medium": "EmptyDir"}
    body["spec"]["tiers"].append({"type": "LocalDisk", "localDisk": disk})
    assert disk_limit_bytes(read_pool(body), 4 << 30) == 1 << 30
    assert disk_limit_bytes(read_pool(body), 1 << 29) == 1 << 29
    assert disk_limit_bytes(read_pool(body), 0) is None


def test_an_agent_of_a_pool_that_is_gone_keeps_what_it_has(pools: Any) -> None:
    had = agent("a", 256, target_bytes=256 * MIB, granted_bytes=256 * MIB, curve=STEEP)
    assert mib(plan(node(had, offer=2048), {}).told) == {"a": 256}


# ---- what is found of a pool's memory


def test_a_node_is_full_when_its_agents_have_all_and_could_have_more(pools: Any) -> None:
    two = (agent("a"), agent("b"))

    def full(offer: int, **changes: Any) -> bool:
        snapshot = node(*two, offer=offer)
        found = gathered([look_at(snapshot, plan(snapshot, pools(**changes)), now_s=NOW_S)])
        return found.get(("team-a", "chat"), NOTHING_KNOWN).node_full

    assert full(512)
    assert not full(1024), "both have all that their limits have room for"
    assert not full(4096)


def test_memory_that_does_not_come_is_told_after_two_minutes(pools: Any) -> None:
    def lacking(**changes: Any) -> frozenset[str]:
        snapshot = node(agent("a", ready_bytes=0, **changes), agent("b"))
        found = gathered([look_at(snapshot, plan(snapshot, pools()), now_s=NOW_S)])
        return found.get(("team-a", "chat"), NOTHING_KNOWN).below_min

    assert lacking(began_s=NOW_S - BELOW_MIN_S) == frozenset()
    assert lacking(began_s=NOW_S - BELOW_MIN_S - 1) == {"a"}
    assert lacking(heard_s=NOW_S - 31) == frozenset(), "a silent one is told by another condition"


# ---- what a person sees


def status_of(snapshot: NodeSnapshot, found: Any, now: str = TIME) -> dict[str, Any]:
    return node_status(snapshot, found, (), now=now).whole()


def test_a_nodes_status_has_what_is_charged_and_sums_that_keep_the_budget(pools: Any) -> None:
    snapshot = node(agent("a", 256, granted_bytes=128 * MIB), agent("b"))
    found = plan(snapshot, pools())
    status = status_of(snapshot, found)
    assert [(one["pod"], one["memoryBytes"] // MIB) for one in status["grants"]] == [
        ("pod-a", 256),
        ("pod-b", 64),
    ]
    assert status["granted"]["memoryBytes"] <= status["offered"]["memoryBytes"] == 512 * MIB
    assert status["measured"]["agents"] == 2
    assert status["display"]["host"] == "320Mi/512Mi"


def test_an_agent_that_is_unheard_is_shown_with_what_was_last_granted(pools: Any) -> None:
    """The ledger charges it all that it could hold: a sum of that passes what the node offers, and
    says nothing of what is there."""
    before = {
        "nodeUID": "uid-n1",
        "grants": [{"podUID": "a", "memoryBytes": 256 * MIB, "since": "2025-12-31T00:00:00Z"}],
    }
    own = CacheNodeView("n1", 1, 512 * MIB, before)
    agents = (agent("a", held=None), agent("b", held=None), agent("c", held=None, newborn=True))
    snapshot = replace(node(*agents, agent("d")), own=own)
    found = plan(snapshot, pools())
    assert sum(claim.charged_bytes for claim in found.claims) > 512 * MIB
    status = status_of(snapshot, found)
    shown = [
        (one["podUID"], one["memoryBytes"] // MIB, one.get("unheard")) for one in status["grants"]
    ]
    assert shown == [("a", 256, True), ("b", 64, True), ("c", 64, None), ("d", 64, None)]
    assert status["grants"][0]["since"] == "2025-12-31T00:00:00Z"
    assert status["granted"] == {"memoryBytes": 448 * MIB}
    assert status["display"]["host"] == "448Mi/512Mi (2 unheard)"


def test_a_grants_time_moves_only_when_the_grant_does(pools: Any) -> None:
    snapshot = node(agent("a"))
    found = plan(snapshot, pools())
    first = status_of(snapshot, found)
    assert snapshot.own is not None
    again = replace(snapshot, own=replace(snapshot.own, status=first))
    assert status_of(again, found, now="2026-01-02T00:00:00Z") == first
    other = replace(again, node=replace(NODE, uid="came-back"))
    status = status_of(other, found, now="2026-01-02T00:00:00Z")
    assert status["nodeUID"] == "came-back"
    assert status["grants"][0]["since"] == "2026-01-02T00:00:00Z"


def test_what_is_the_same_is_not_written_and_what_moves_all_day_seldom(pools: Any) -> None:
    snapshot = node(agent("a"))
    first = status_of(snapshot, plan(snapshot, pools()))

    def why(one: AgentSnapshot, since_s: float) -> Due | None:
        found = node_status(node(one), plan(node(one), pools()), (), now=TIME)
        due = due_of(
            found,
            first,
            since_write_s=since_s,
            happened_after_s=STRUCTURE_INTERVAL_S,
            counted_after_s=MEASURED_INTERVAL_S,
        )
        return due[0] if due is not None else None

    used = agent("a", used=TierBytes(7))
    grown = agent("a", 128)
    assert why(agent("a"), 1e9) is None
    assert why(used, MEASURED_INTERVAL_S - 1) is None
    assert why(used, MEASURED_INTERVAL_S) is Due.COUNTED
    assert why(grown, STRUCTURE_INTERVAL_S) is Due.HAPPENED
    assert why(grown, STRUCTURE_INTERVAL_S - 1) is None
