"""Accounts of agents, and what a node's snapshot says of them."""

from dataclasses import replace
from typing import Any

import pytest

from onggi_core.heartbeat import Demand, Heartbeat, TierBytes
from onggi_operator.observe.accounts import HALF_LIFE_S, Account, Report
from onggi_operator.observe.fleet import LEASE_S, AgentSnapshot, Fleet, NodeSnapshot
from onggi_operator.observe.nodes import (
    CacheNodeView,
    NodeView,
    project_cache_node,
    project_node,
)
from onggi_operator.observe.pods import AgentSizes, Neighbour, PodView, project_pod
from onggi_operator.observe.requests import memory_request

MIB = 1 << 20
SIZES = AgentSizes(64 * MIB, 512 * MIB, 0)
NODE = NodeView("n1", "uid-n1", 4096 * MIB, 0, ready=True, leaving=False)


@pytest.fixture
def beat(status_kit: Any) -> Any:
    def made(pod: str = "one", held: int = 64, **changes: Any) -> Heartbeat:
        found: Heartbeat = status_kit.beat(pod, held=TierBytes(held * MIB, 0), **changes)
        return found

    return made


@pytest.fixture
def pod(status_kit: Any) -> Any:
    def made(name: str = "one", **changes: Any) -> PodView:
        fields = {"node": "n1", "sizes": SIZES, "request_bytes": 256 * MIB, **changes}
        found: PodView = status_kit.pod(name, **fields)
        return found

    return made


class Site:
    def __init__(self, *pods: PodView | Neighbour) -> None:
        self.pods = {("team-a", f"{number}"): one for number, one in enumerate(pods)}
        self.nodes = {("", "n1"): NODE}
        self.own: dict[tuple[str, str], CacheNodeView] = {}
        self.fleet = Fleet(self.pods, self.nodes, self.own, started_s=0.0, newborn_after="2026")

    def node(self, now_s: float = 1.0) -> NodeSnapshot:
        self.fleet.look(now_s=now_s)
        found = self.fleet.node("n1", now_s=now_s)
        assert found is not None
        return found


# ---- accounts


def account() -> Account:
    return Account("uid-one", "n1", 0.0, 0.0)


def test_a_report_that_was_overtaken_is_not_believed(beat: Any) -> None:
    one = account()
    assert one.hear(beat(held=512, sequence=2), now_s=1.0) is Report.TAKEN
    assert one.hear(beat(held=64, sequence=1), now_s=2.0) is Report.OVERTAKEN
    assert one.held == TierBytes(512 * MIB, 0)


def test_a_report_of_a_life_that_is_over_is_not_believed(beat: Any) -> None:
    one = account()
    one.hear(beat(epoch="aaaaaaaa", held=64, sequence=9), now_s=1.0)
    assert one.hear(beat(epoch="bbbbbbbb", held=512, sequence=1), now_s=2.0) is Report.TAKEN
    assert one.hear(beat(epoch="aaaaaaaa", held=64, sequence=10), now_s=3.0) is Report.OVERTAKEN


def test_another_life_is_believed_once_it_repeats_what_it_was_told(beat: Any) -> None:
    one = account()
    assert one.hear(beat(epoch="aaaaaaaa", sequence=4, confirms=""), now_s=1.0) is Report.TAKEN
    begun = beat(epoch="bbbbbbbb", held=64, sequence=1, confirms="")
    assert one.hear(begun, now_s=2.0) is Report.DOUBTED
    mark = one.mark
    assert mark
    assert one.epoch == "aaaaaaaa"
    late = beat(epoch="cccccccc", held=512, sequence=1, confirms="")
    assert one.hear(late, now_s=3.0) is Report.DOUBTED
    assert one.mark not in ("", mark)
    again = beat(epoch="bbbbbbbb", held=64, sequence=2, confirms=mark)
    assert one.hear(again, now_s=4.0) is Report.DOUBTED, "something else was told since"
    again = beat(epoch="bbbbbbbb", held=64, sequence=3, confirms=one.mark)
    assert one.hear(again, now_s=5.0) is Report.TAKEN
    assert (one.epoch, one.held, one.mark) == ("bbbbbbbb", TierBytes(64 * MIB, 0), "")


def test_who_began_to_number_its_reports_does_not_end_it(beat: Any) -> None:
    one = account()
    assert one.hear(beat(held=512, sequence=5), now_s=1.0) is Report.TAKEN
    assert one.hear(beat(held=64, sequence=0), now_s=2.0) is Report.OVERTAKEN
    assert one.hear(beat(held=64, sequence=3), now_s=3.0) is Report.OVERTAKEN
    assert one.held == TierBytes(512 * MIB, 0)


def test_an_agent_that_does_not_number_its_reports_is_believed(beat: Any) -> None:
    one = account()
    assert one.hear(beat(), now_s=1.0) is Report.TAKEN
    assert one.hear(beat(), now_s=2.0) is Report.TAKEN


def test_an_answer_counts_until_the_report_that_contains_it(beat: Any) -> None:
    one = account()
    one.hear(beat(sequence=1), now_s=1.0)
    one.granted_bytes = 8
    assert one.answer() == 8
    one.granted_bytes = 4
    assert one.answered_bytes == 8
    one.hear(beat(sequence=2), now_s=2.0)
    assert one.answered_bytes is None


def test_demand_is_what_was_asked_for_of_late() -> None:
    demand = Demand_seen([(0, 100.0), (1000, 110.0)])
    assert demand == pytest.approx(100.0)
    faded = Demand_seen([(0, 100.0), (1000, 110.0), (1000, 110.0 + 10 * HALF_LIFE_S)])
    assert faded < 0.01


def Demand_seen(states: list[tuple[int, float]]) -> float:  # noqa: N802
    one = account()
    for tokens, at_s in states:
        one.demand.see(tokens, at_s)
    return one.demand.tokens_per_s


def test_another_life_counts_from_zero_and_adds_to_the_same_demand(beat: Any) -> None:
    one = account()
    one.hear(beat(epoch="aaaaaaaa", sequence=1, demand=Demand(5000)), now_s=1.0)
    one.hear(beat(epoch="aaaaaaaa", sequence=2, demand=Demand(6000)), now_s=2.0)
    one.hear(beat(epoch="bbbbbbbb", sequence=1, demand=Demand(500)), now_s=3.0)
    one.hear(beat(epoch="bbbbbbbb", sequence=2, demand=Demand(1500)), now_s=4.0)
    assert one.demand.tokens_per_s == pytest.approx(1000.0, rel=0.01)


def test_a_curve_outlives_the_budget_it_was_drawn_under_and_noise_is_evened_out(beat: Any) -> None:
    one = account()
    for sequence, curve in enumerate((((10, 0.2), (20, 0.4)), (), ((10, 0.7), (20, 0.9))), 1):
        one.hear(beat(sequence=sequence, demand=Demand(0, curve)), now_s=sequence)
    assert one.curve == ((10, pytest.approx(0.3)), (20, pytest.approx(0.5)))
    one.hear(beat(sequence=9, demand=Demand(0, ((5, 0.1),))), now_s=9)
    assert one.curve == ((5, 0.1),)


# ---- the fleet


def test_a_node_is_what_it_has_and_who_is_on_it(pod: Any, beat: Any) -> None:
    site = Site(pod(), pod("elsewhere", node="n2"), Neighbour("n1", 100 * MIB))
    site.fleet.hear(beat(held=128), now_s=1.0)
    node = site.node()
    assert node.requested_bytes == 356 * MIB
    assert [(agent.pod, agent.held) for agent in node.agents] == [("one", TierBytes(128 * MIB, 0))]


def test_an_agent_whose_pod_is_gone_is_charged_until_its_lease_ends(pod: Any, beat: Any) -> None:
    """A pod that was deleted by force may still hold its memory."""
    site = Site(pod())
    site.fleet.hear(beat(held=512), now_s=1.0)
    site.node()
    site.pods.clear()
    assert [agent.gone for agent in site.node(now_s=1.0 + LEASE_S / 2).agents] == [True]
    assert site.node(now_s=1.1 + LEASE_S).agents == ()


def test_of_a_pod_that_is_gone_counts_what_its_agent_was_told_last(pod: Any, beat: Any) -> None:
    """It was told between the last look and its pod's end, and may hold that now."""
    site = Site(pod())
    site.fleet.hear(beat(held=64), now_s=1.0)
    site.node()
    site.fleet.grant({}, {"uid-one": 256 * MIB}, set(), now_s=1.0)
    site.fleet.hear(beat(held=64, sequence=1), now_s=2.0)
    assert site.fleet.answer("uid-one") == 256 * MIB
    site.pods.clear()
    (agent,) = site.node(now_s=3.0).agents
    assert (agent.gone, agent.answered_bytes) == (True, 256 * MIB)


def test_an_agents_snapshot_has_each_field_from_its_place(pod: Any, beat: Any) -> None:
    one = pod(deleting=True, created="2025")
    site = Site(one)
    sized = {"capacity": TierBytes(5, 6), "used": TierBytes(7, 8), "arena_ready_bytes": 9}
    for sequence, asked in ((1, 0), (2, 20)):
        demand = Demand(asked, ((10, 0.5),))
        told = beat(sequence=sequence, demand=demand, pending_blocks=11, draining=True, **sized)
        site.fleet.hear(replace(told, held=None), now_s=10.0 * sequence)
    site.fleet.grant({"uid-one": 1}, {"uid-one": 2}, {"uid-one"}, now_s=30.0)
    assert site.fleet.answer("uid-one") == 2
    site.fleet.grant({}, {"uid-one": 3}, set(), now_s=31.0)
    assert site.node(now_s=32.0).agents == (
        AgentSnapshot(
            uid="uid-one",
            namespace="team-a",
            pod="one",
            pool="chat",
            sizes=SIZES,
            deleting=True,
            gone=False,
            newborn=False,
            heard_s=20.0,
            began_s=10.0,
            moved_s=30.0,
            target_bytes=1,
            granted_bytes=3,
            answered_bytes=2,
            held=TierBytes(5, 6),
            used=TierBytes(7, 8),
            ready_bytes=9,
            tokens_per_s=2.0,
            curve=((10, 0.5),),
            pending_blocks=11,
            draining=True,
            request=None,
        ),
    )


def test_a_lost_node_takes_its_grants_with_it(pod: Any, beat: Any) -> None:
    site = Site(pod())
    site.fleet.hear(beat(), now_s=1.0)
    site.node()
    site.nodes.clear()
    assert site.fleet.look(now_s=2.0) == ()
    assert site.fleet.node("n1", now_s=2.0) is None
    site.nodes["", "n1"] = replace(NODE, uid="another")
    assert [agent.held for agent in site.node(now_s=3.0).agents] == [None]


def test_who_is_to_leave_is_told_to_drain(pod: Any) -> None:
    site = Site(pod(), pod("two", deleting=True))
    site.node()
    assert [site.fleet.is_leaving(uid) for uid in ("uid-one", "uid-two")] == [False, True]
    site.nodes["", "n1"] = replace(NODE, leaving=True)
    site.node()
    assert site.fleet.is_leaving("uid-one")


def test_nodes_are_not_all_due_at_once(pod: Any) -> None:
    site = Site(pod())
    site.nodes |= {("", f"node-{n}"): replace(NODE, name=f"node-{n}") for n in range(100)}
    names = site.fleet.look(now_s=0.0)
    waited = [node.since_look_s for name in names if (node := site.fleet.node(name, now_s=0.0))]
    assert min(waited) < 6 < 54 < max(waited) <= 60


# ---- what objects say


def test_a_nodes_figures_are_its_allocatable_and_a_cordon_says_that_pods_leave() -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "n1", "uid": "u"},
        "status": {
            "allocatable": {"memory": "16Gi", "ephemeral-storage": "100Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert project_node(body) == NodeView("n1", "u", 16 << 30, 100 << 30, ready=True, leaving=False)
    assert project_node({**body, "spec": {"unschedulable": True}}).leaving
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    assert project_node({**body, "spec": {"taints": taints}}).leaving
    assert not project_node({"metadata": body["metadata"]}).ready


def test_a_node_is_settled_a_minute_after_it_became_ready() -> None:
    def view(status: str) -> NodeView:
        ready = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T10:00:00Z"}
        meta = {"name": "n1", "uid": "u"}
        return project_node({"metadata": meta, "status": {"conditions": [ready]}})

    assert not view("True").is_settled("2026-01-01T10:00:59Z")
    assert view("True").is_settled("2026-01-01T10:01:00Z")
    assert not view("Unknown").is_settled("2026-01-01T11:00:00Z")
    assert NODE.is_settled("2026-01-01T10:00:00Z"), "it does not say since when"


def test_what_a_node_is_to_give_is_its_objects_spec() -> None:
    meta = {"name": "n1", "generation": 3, "resourceVersion": "7"}
    view = project_cache_node({"metadata": meta, "spec": {"offer": {"memory": "2Gi"}}})
    assert (view.offer_bytes, view.generation, view.status, view.version) == (2 << 30, 3, {}, "7")
    assert project_cache_node({"metadata": meta}).offer_bytes is None


@pytest.mark.parametrize("size", ["8Ei", "10e18", "1e21", "1e9999", "9" * 60])
def test_sizes_that_only_the_api_server_takes_end_nobody(size: str) -> None:
    """Anybody who may make a pod may write them."""
    most = 2**63 - 1
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": {"memory": size}}}]}
    assert project_pod({"metadata": {}, "spec": spec}) == Neighbour("n1", most)
    meta = {"name": "n1", "uid": "u1", "generation": 1, "resourceVersion": "1"}
    spec = {"offer": {"memory": size}}
    assert project_cache_node({"metadata": meta, "spec": spec}).offer_bytes == most
    status = {"allocatable": {"memory": size, "ephemeral-storage": size}}
    view = project_node({"metadata": meta, "spec": {}, "status": status})
    assert (view.memory_bytes, view.disk_bytes) == (most, most)


def asks(memory: str) -> dict[str, Any]:
    return {"resources": {"requests": {"memory": memory}}}


@pytest.mark.parametrize(
    ("spec", "mib"),
    [
        ({"containers": [asks("1Gi"), asks("512Mi"), {}]}, 1536),
        ({"containers": [asks("1Gi")], "initContainers": [asks("2Gi")]}, 2048),
        (
            {
                "containers": [asks("1Gi")],
                "initContainers": [asks("512Mi") | {"restartPolicy": "Always"}, asks("128Mi")],
            },
            1536,
        ),
        ({"containers": [asks("1Gi")], "overhead": {"memory": "64Mi"}}, 1088),
        ({"containers": [asks("1Gi")], **asks("3Gi")}, 3072),
        ({"containers": []}, 0),
    ],
)
def test_a_pods_request_is_what_the_scheduler_counts(spec: dict[str, Any], mib: int) -> None:
    assert memory_request(spec) == mib * MIB


def test_an_agents_sizes_are_those_of_its_own_environment() -> None:
    agent = {
        "name": "onggi-agent",
        "env": [
            {"name": "ONGGI_AGENT_MEMORY", "value": "67108864"},
            {"name": "ONGGI_AGENT_MEMORY_MAX", "value": "536870912"},
            {"name": "ONGGI_AGENT_DISK", "value": "lots"},
            {"name": "ONGGI_AGENT_POD_NAME", "valueFrom": {}},
        ],
    }
    body = {
        "metadata": {
            "namespace": "team-a",
            "name": "one",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"onggi.dev/pool": "chat"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-1", "controller": True}],
        },
        "spec": {"nodeName": "n1", "containers": [asks("1Gi")], "initContainers": [agent]},
    }
    view = project_pod(body)
    assert isinstance(view, PodView)
    assert (view.node, view.sizes, view.request_bytes) == ("n1", SIZES, 1 << 30)
    assert view.owner == ("ReplicaSet", "chat-1")
    del body["metadata"]["annotations"]
    assert project_pod(body) == Neighbour("n1", 1 << 30)
    del body["spec"]["nodeName"]
    assert project_pod(body) is None
