"""Nodes with memory left for one more agent: found by the controller, preferred by the webhook."""

from dataclasses import replace
from typing import Any

import pytest

from onggi_core.heartbeat import TierBytes
from onggi_operator.observe.fleet import NodeSnapshot
from onggi_operator.observe.nodes import CacheNodeView, NodeView
from onggi_operator.placement import Scheduling
from onggi_operator.plan.grants import plan_node
from onggi_operator.plan.room import ROOM_NODES_MAX, room_of
from onggi_operator.plan.status import plan_status
from onggi_operator.pool import read_pool

GI = 1 << 30
NOW, NOW_S = "2026-01-01T02:00:00Z", 100.0
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GROWS = {"max": "4Gi", "min": "1Gi", "hugepages": "Auto"}


class Pools:
    """A pool whose status is what was last planned for it, and nodes with some room each."""

    def __init__(self, kit: Any, memory: dict[str, Any]) -> None:
        self.kit = kit
        self.spec = {"tiers": [{"type": "Memory", "memory": memory}]}
        self.pods: dict[Any, Any] = {}
        self.status: dict[str, Any] = {}
        self.world = kit.World(self.pods, started="2026-01-01T00:00:00Z", started_s=0.0)
        self._see()

    def _see(self) -> None:
        self.body = self.kit.body(spec=self.spec, status=self.status)
        self.world.see_pool(self.body)

    def lives(self, name: str, node: str) -> None:
        self.pods["team-a", name] = self.kit.pod(name)
        sizes = {"capacity": TierBytes(GI, 0), "used": TierBytes(0, 0)}
        self.world.hear(self.kit.beat(name, node=node, **sizes), now_s=NOW_S - 1)

    def nodes(self, now_s: float = NOW_S, **rooms_gib: float) -> list[str]:
        by_room = sorted(rooms_gib.items(), key=lambda one: -one[1])
        rooms = {name: int(gib * GI) for name, gib in by_room}
        (pool,) = self.world.snapshot(now_s=now_s)
        self.status = plan_status(pool, now_s=now_s, now=NOW, node_uids={}, rooms=rooms).whole()
        self._see()
        assert read_pool(self.body).room_nodes == tuple(self.status["roomNodes"])
        found: list[str] = self.status["roomNodes"]
        return found


@pytest.fixture
def pools(status_kit: Any) -> Pools:
    return Pools(status_kit, GROWS)


def test_a_node_has_room_while_one_more_agent_could_grow_to_its_most(pools: Pools) -> None:
    assert pools.nodes(n1=4, n2=3.9, n3=64) == ["n1", "n3"]
    assert pools.nodes(n1=3.9, n2=4, n3=64) == ["n2", "n3"]
    assert pools.nodes() == []


def test_ten_are_named_those_of_before_first_then_where_the_pool_lives_then_the_roomiest(
    pools: Pools,
) -> None:
    few = {f"n{number}": 8.0 for number in range(ROOM_NODES_MAX - 2)}
    assert pools.nodes(**few) == sorted(few)
    pools.lives("one", "home")
    named = pools.nodes(**few, home=4, large=90, larger=99)
    assert named == sorted([*few, "home", "larger"])
    assert pools.nodes(**few, home=4, large=900, larger=99) == named, "nothing changed for it"


def test_a_pool_whose_pods_ask_for_everything_leaves_it_to_the_scheduler(status_kit: Any) -> None:
    fixed = Pools(status_kit, {"max": "4Gi", "hugepages": "Auto"})
    assert fixed.nodes(n1=64) == []


def test_an_operator_that_starts_anew_believes_the_last_one_until_it_has_listened(
    pools: Pools,
) -> None:
    assert pools.nodes(n1=4) == ["n1"]
    pools.world = pools.kit.World(pools.pods, started=NOW, started_s=200.0)
    pools._see()
    assert pools.nodes(now_s=230) == ["n1"]
    assert pools.nodes(now_s=231) == []


def test_room_is_what_nobody_is_charged_for_of_a_node_that_pods_may_come_to() -> None:
    node = NodeView("n1", "u1", 64 * GI, 0, ready=True, leaving=False)
    own = CacheNodeView("n1", 1, 8 * GI, {})
    snapshot = NodeSnapshot(node, own, 0, (), 0.0)

    def room(changed: NodeSnapshot) -> int | None:
        return room_of(changed, plan_node(changed, {}, now_s=NOW_S, fresh_s=30))

    assert room(snapshot) == 8 * GI
    assert room(replace(snapshot, own=None)) is None, "no agent ever ran there"
    assert room(replace(snapshot, node=replace(node, leaving=True))) is None
    assert room(replace(snapshot, node=replace(node, ready=False))) is None


def term(node: str, weight: int) -> dict[str, Any]:
    names = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"weight": weight, "preference": {"matchFields": names}}


OWN = {"weight": 100, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}


def test_data_draw_more_than_room_and_both_most(kit: Any) -> None:
    body = kit.pod(affinity={"nodeAffinity": {PREFERRED: [OWN]}})
    after = kit.inject(
        body, disk=kit.HOST_PATH, warm_nodes=("n01", "n02"), room_nodes=("n02", "n03")
    )
    terms = after["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert terms == [OWN, term("n01", 50), term("n02", 50), term("n02", 25), term("n03", 25)]


def test_a_pod_without_a_disk_is_drawn_to_room_alone(kit: Any) -> None:
    body = kit.pod(annotations={"onggi.dev/disk": "0"})
    after = kit.inject(body, disk=kit.HOST_PATH, warm_nodes=("n01",), room_nodes=("n03",))
    assert after["spec"]["affinity"]["nodeAffinity"][PREFERRED] == [term("n03", 25)]


def test_no_preference_where_it_has_no_use(kit: Any) -> None:
    off = kit.replace(kit.POOL.placement, scheduling=Scheduling.OFF)
    for body, changes in (
        (kit.pod(), {"placement": off}),
        (kit.pod(nodeName="n02"), {}),
        (kit.pod(), {"room_nodes": ()}),
    ):
        after = kit.inject(body, **{"room_nodes": ("n01",), **changes})
        assert "affinity" not in after["spec"]


def test_a_pod_carries_a_bounded_list(kit: Any) -> None:
    """Every pod of a pool has it in etcd."""
    many = tuple(f"{number:0>200}" for number in range(60))
    after = kit.inject(kit.pod(), disk=kit.HOST_PATH, warm_nodes=many, room_nodes=many)
    terms = after["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert len(terms) == 20
    assert {one["weight"] for one in terms} == {25, 50}


@pytest.mark.cluster
def test_the_api_server_takes_a_pod_with_the_preference(kit: Any, server: Any) -> None:
    body = kit.pod(affinity={"nodeAffinity": {PREFERRED: [OWN]}}, serviceAccountName="default")
    after = kit.inject(body, disk=kit.HOST_PATH, warm_nodes=("n01",), room_nodes=("n01",))
    pod = {"apiVersion": "v1", "kind": "Pod", **after}
    made = server.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    terms = made["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert [one["weight"] for one in terms] == [100, 50, 25]
