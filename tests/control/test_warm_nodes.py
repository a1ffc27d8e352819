"""Nodes that hold data of dead pods: found by the controller, preferred by the webhook."""

from typing import Any

import pytest

from onggi_core.heartbeat import TierBytes
from onggi_operator.placement import Scheduling
from onggi_operator.plan.status import plan_status
from onggi_operator.pool import read_pool

T0 = "2026-01-01T02:00:00Z"
T1 = "2026-01-01T02:00:10Z"
GI = 1 << 30
FULL = {"capacity": TierBytes(GI, 4 * GI), "used": TierBytes(GI, GI)}
BLANK = {"capacity": TierBytes(GI, 4 * GI), "used": TierBytes(0, 0)}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def spec(medium: str = "HostPath", **lifecycle: Any) -> dict[str, Any]:
    path = {"path": "/data"} if medium == "HostPath" else {}
    disk = {"max": "4Gi", "medium": medium, **path}
    return {
        "tiers": [
            {"type": "Memory", "memory": {"max": "1Gi", "hugepages": "Auto"}},
            {"type": "LocalDisk", "localDisk": disk},
        ],
        "lifecycle": {
            "rampUp": "1m",
            "drain": {"deadline": "10s"},
            "warmGate": {"until": "Off", "timeout": "5m"},
            **lifecycle,
        },
    }


class Site:
    """A pool whose status is what was last planned for it."""

    def __init__(self, kit: Any, wanted: dict[str, Any]) -> None:
        self.kit, self.spec, self.status = kit, wanted, {}
        self.pods: dict[Any, Any] = {}
        self.node_uids = {f"n{number:02}": f"u{number}" for number in range(100)}
        self.world = kit.World(self.pods, started="2026-01-01T00:00:00Z", started_s=0.0)
        self._see()

    def _see(self) -> None:
        self.body = self.kit.body(spec=self.spec, status=self.status)
        self.world.see_pool(self.body)

    def lives(self, name: str, node: str, sizes: dict[str, Any]) -> None:
        self.pods["team-a", name] = self.kit.pod(name)
        self.world.hear(self.kit.beat(name, node=node, **sizes), now_s=99)

    def dies(self, name: str) -> None:
        del self.pods["team-a", name]

    def nodes(self, now: str = T0, *, now_s: float = 100.0) -> list[dict[str, Any]]:
        (pool,) = self.world.snapshot(now_s=now_s)
        self.status = plan_status(pool, now_s=now_s, now=now, node_uids=self.node_uids).whole()
        self._see()
        found: list[dict[str, Any]] = self.status["nodes"]
        return found

    def warm(self) -> tuple[str, ...]:
        return read_pool(self.body).warm_nodes


@pytest.fixture
def site(status_kit: Any) -> Site:
    return Site(status_kit, spec())


def test_a_node_is_warm_once_a_pod_with_data_is_gone_and_until_another_has_taken_over(
    site: Site,
) -> None:
    site.lives("one", "n01", FULL)
    assert site.nodes() == [{"node": "n01", "nodeUID": "u1", "folders": 1, "agents": 1}]
    assert site.warm() == ()
    site.dies("one")
    assert site.nodes() == [
        {"node": "n01", "nodeUID": "u1", "folders": 1, "agents": 0, "leftAt": T0}
    ]
    assert site.nodes(T1)[0]["leftAt"] == T0
    assert site.warm() == ("n01",)
    site.lives("two", "n01", FULL)
    assert site.nodes(T1) == [{"node": "n01", "nodeUID": "u1", "folders": 1, "agents": 1}]
    assert site.warm() == ()


def test_an_agent_that_has_stored_nothing_leaves_nothing(site: Site) -> None:
    site.lives("one", "n01", BLANK)
    assert site.nodes() == []
    site.dies("one")
    assert site.nodes() == []


def test_two_folders_and_one_agent_leave_one_to_take_over(site: Site) -> None:
    site.lives("one", "n01", FULL)
    site.lives("two", "n01", FULL)
    site.lives("three", "n02", FULL)
    site.nodes()
    site.dies("two")
    site.dies("three")
    assert site.nodes(T1) == [
        {"node": "n01", "nodeUID": "u1", "folders": 2, "agents": 1, "leftAt": T1},
        {"node": "n02", "nodeUID": "u2", "folders": 1, "agents": 0, "leftAt": T1},
    ]
    assert site.warm() == ("n01", "n02")


def test_data_counts_no_longer_than_the_pool_keeps_it(status_kit: Any) -> None:
    site = Site(status_kit, spec(diskRetention="1h"))
    site.lives("one", "n01", FULL)
    site.nodes()
    site.dies("one")
    site.nodes(T0)
    assert len(site.nodes("2026-01-01T03:00:00Z")) == 1
    assert site.nodes("2026-01-01T03:00:01Z") == []


@pytest.mark.parametrize("medium", ["EmptyDir"])
def test_a_disk_that_goes_with_its_pod_leaves_nothing(status_kit: Any, medium: str) -> None:
    site = Site(status_kit, spec(medium))
    site.lives("one", "n01", FULL)
    assert site.nodes() == []


def test_an_operator_that_starts_anew_believes_the_last_one_until_it_has_listened(
    site: Site, status_kit: Any
) -> None:
    site.lives("one", "n01", FULL)
    before = site.nodes()
    again = status_kit.World(site.pods, started=T0, started_s=200.0)
    again.see_pool(status_kit.body(spec=spec(), status=site.status))
    for now_s, expected in ((230, before), (231, [{**before[0], "agents": 0, "leftAt": T1}])):
        (pool,) = again.snapshot(now_s=now_s)
        assert (
            plan_status(pool, now_s=now_s, now=T1, node_uids=site.node_uids).whole()["nodes"]
            == expected
        )


def test_data_goes_with_its_node_and_a_new_node_of_the_name_has_none(site: Site) -> None:
    """A replaced node was taken for the old one by its name (openshift/api#2821)."""
    for name, node in (("one", "n01"), ("two", "n02")):
        site.lives(name, node, FULL)
    site.nodes()
    site.dies("one")
    site.dies("two")
    assert [one["node"] for one in site.nodes()] == ["n01", "n02"]
    del site.node_uids["n01"]
    site.node_uids["n02"] = "another"
    assert site.nodes() == []


def test_the_list_is_bounded_and_the_longest_left_go_first(site: Site) -> None:
    for number in range(50):
        site.lives(f"p{number:02}", f"n{number:02}", FULL)
    site.nodes()
    site.dies("p07")
    site.nodes(T0)
    site.dies("p09")
    site.nodes(T1)
    site.lives("new", "n99", FULL)
    names = [one["node"] for one in site.nodes(T1)]
    assert len(names) == 50
    assert "n07" not in names
    assert {"n09", "n99"} <= set(names)


TERM = {
    "weight": 50,
    "preference": {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n01"]}]
    },
}  # fmt: skip
OWN = {"weight": 100, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, {"nodeAffinity": {PREFERRED: [TERM]}}),
        ({"podAffinity": {}}, {"podAffinity": {}, "nodeAffinity": {PREFERRED: [TERM]}}),
        ({"nodeAffinity": {PREFERRED: [OWN]}}, {"nodeAffinity": {PREFERRED: [OWN, TERM]}}),
        ({"nodeAffinity": {PREFERRED: []}}, {"nodeAffinity": {PREFERRED: [TERM]}}),
    ],
)
def test_a_new_pod_prefers_a_warm_node_beside_what_it_prefers_already(
    kit: Any, affinity: Any, expected: Any
) -> None:
    body = kit.pod(**({} if affinity is None else {"affinity": affinity}))
    after = kit.inject(body, disk=kit.HOST_PATH, warm_nodes=("n01",))
    assert after["spec"]["affinity"] == expected


def test_no_preference_where_it_has_no_use(kit: Any) -> None:
    off = kit.replace(kit.POOL.placement, scheduling=Scheduling.OFF)
    for body, changes in (
        (kit.pod(), {"placement": off}),
        (kit.pod(nodeName="n02"), {}),
        (kit.pod(annotations={"onggi.dev/disk": "0"}), {}),
        (kit.pod(), {"warm_nodes": ()}),
    ):
        after = kit.inject(body, **{"disk": kit.HOST_PATH, "warm_nodes": ("n01",), **changes})
        assert "affinity" not in after["spec"]


def test_a_pod_names_ten_nodes_at_most(kit: Any) -> None:
    many = tuple(f"n{number}" for number in range(30))
    after = kit.inject(kit.pod(), disk=kit.HOST_PATH, warm_nodes=many)
    terms = after["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert [term["preference"]["matchFields"][0]["values"][0] for term in terms] == list(many[:10])


@pytest.mark.cluster
def test_the_api_server_takes_a_pod_with_the_preference(kit: Any, server: Any) -> None:
    affinity = {"nodeAffinity": {PREFERRED: [OWN]}}
    body = kit.pod(affinity=affinity, serviceAccountName="default")
    after = kit.inject(body, disk=kit.HOST_PATH, warm_nodes=("n01", "n02"))
    pod = {"apiVersion": "v1", "kind": "Pod", **after}
    made = server.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    terms = made["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert [term["weight"] for term in terms] == [100, 50, 50]
