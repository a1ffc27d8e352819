"""Warm gates: who waits, for what, and that nobody waits for ever."""

from dataclasses import replace
from typing import Any

import pytest

from onggi_operator.gates import AGAIN_S, GateKeeper
from onggi_operator.kube.client import ApiError, NotFound
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.pods import AgentSizes, PodView, project_pod
from onggi_operator.plan.gates import OPENED_PER_ROUND_MAX, Opened, plan_gates
from onggi_operator.pool import Pool, read_pool

MIB = 1 << 20
NOW = "2026-01-01T02:00:00Z"
STARTED = "2026-01-01T01:59:00Z"
KEY = ("team-a", "chat")


@pytest.fixture
def kit(status_kit: Any) -> Any:
    return status_kit


def gated(kit: Any, name: str = "one", **changes: Any) -> PodView:
    sizes = AgentSizes(64 * MIB, 512 * MIB, 0)
    view: PodView = kit.pod(name, gated=True, started=STARTED, sizes=sizes, node="n1")
    return replace(view, **changes)


def pools(kit: Any, until: str = "DiskAdopted", timeout: str = "5m") -> dict[Any, Pool]:
    body = kit.body()
    body["spec"]["lifecycle"]["warmGate"] = {"until": until, "timeout": timeout}
    return {KEY: read_pool(body)}


def opened(
    kit: Any, pod: PodView, pooled: dict[Any, Pool], *beats: tuple[float, int], now_s: float = 100.0
) -> list[Opened]:
    """`beats`: when the agent reported, and how much memory it had then."""
    fleet = Fleet({KEY: pod}, {}, {}, started_s=0.0, newborn_after=NOW)
    for at_s, ready in beats:
        fleet.hear(kit.beat(arena_ready_bytes=ready * MIB), now_s=at_s)
    return [one.reason for one in plan_gates([pod], pooled, fleet.agent, now_s=now_s, now=NOW)]


def test_a_gate_opens_when_the_agent_reports_with_its_memory(kit: Any) -> None:
    assert opened(kit, gated(kit), pools(kit)) == []
    assert opened(kit, gated(kit), pools(kit), (99.0, 0)) == []
    assert opened(kit, gated(kit), pools(kit), (99.0, 64)) == [Opened.WARM]


def test_one_that_waits_for_the_ramp_opens_after_it(kit: Any) -> None:
    ramped = pools(kit, "RampedUp")
    assert opened(kit, gated(kit), ramped, (50.0, 64), now_s=109.0) == []
    assert opened(kit, gated(kit), ramped, (50.0, 64), now_s=110.0) == [Opened.WARM]


@pytest.mark.parametrize(
    ("timeout", "expected"), [("60s", []), ("59s", [Opened.TIMED_OUT]), ("10s", [Opened.TIMED_OUT])]
)
def test_a_gate_opens_in_any_case_after_its_time(
    kit: Any, timeout: str, expected: list[Opened]
) -> None:
    assert opened(kit, gated(kit), pools(kit, timeout=timeout)) == expected
    unplaced = gated(kit, started="")
    assert opened(kit, unplaced, pools(kit, timeout=timeout)) == [], "no kubelet has it yet"


def test_a_gate_that_nobody_asks_for_any_more_opens(kit: Any) -> None:
    assert opened(kit, gated(kit), pools(kit, "Off")) == [Opened.GATE_OFF]
    assert opened(kit, gated(kit), {}) == [Opened.GATE_OFF]
    assert opened(kit, gated(kit, sizes=None), pools(kit)) == [Opened.GATE_OFF]


def test_others_are_left_alone(kit: Any) -> None:
    assert opened(kit, gated(kit, gated=False), pools(kit, "Off")) == []
    assert opened(kit, gated(kit, deleting=True), pools(kit, "Off")) == []


def test_a_roll_out_is_opened_in_parts_oldest_first(kit: Any) -> None:
    many = [gated(kit, f"p{n:02}") for n in range(OPENED_PER_ROUND_MAX + 5)]
    found = plan_gates(many[::-1], {}, lambda _: None, now_s=1.0, now=NOW)
    assert [one.pod for one in found] == [pod.name for pod in many[:OPENED_PER_ROUND_MAX]]


@pytest.mark.parametrize(
    ("gates", "conditions", "expected"),
    [
        ([], [], False),
        (["onggi.dev/warm"], [], True),
        (["other", "onggi.dev/warm"], [("onggi.dev/warm", "False")], True),
        (["onggi.dev/warm"], [("Ready", "True")], True),
        (["onggi.dev/warm"], [("onggi.dev/warm", "True")], False),
        (["other"], [], False),
    ],
)
def test_who_waits_is_read_from_the_pod(
    gates: list[str], conditions: list[tuple[str, str]], expected: bool
) -> None:
    view = project_pod(
        {
            "metadata": {
                "namespace": "team-a", "name": "one", "uid": "u", "creationTimestamp": NOW,
                "annotations": {"onggi.dev/pool": "chat"},
            },
            "spec": {"readinessGates": [{"conditionType": gate} for gate in gates]},
            "status": {
                "startTime": STARTED,
                "conditions": [{"type": kind, "status": told} for kind, told in conditions],
            },
        }
    )  # fmt: skip
    assert isinstance(view, PodView)
    assert (view.gated, view.started) == (expected, STARTED)


class Api:
    def __init__(self, *faults: Exception | None) -> None:
        self.faults = list(faults)
        self.patched: list[tuple[str, Any]] = []

    async def patch(self, path: str, body: Any, *, kind: str) -> None:
        assert kind == "application/strategic-merge-patch+json"
        self.patched.append((path, body))
        if self.faults and (fault := self.faults.pop(0)):
            raise fault


async def test_what_was_set_a_moment_ago_is_not_set_again(kit: Any) -> None:
    api = Api()
    keeper = GateKeeper(api, lambda _: None)  # type: ignore[arg-type]
    for now_s in (1.0, 3.0, AGAIN_S, AGAIN_S + 1.0):
        await keeper.open([gated(kit)], {}, now_s=now_s, now=NOW)
    assert len(api.patched) == 2
    path, body = api.patched[0]
    assert path == "/api/v1/namespaces/team-a/pods/one/status"
    assert body["metadata"] == {"uid": "uid-one"}
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "onggi.dev/warm", "True", "GateOff",
    )  # fmt: skip


async def test_one_pod_that_is_gone_or_refused_keeps_no_other_closed(kit: Any) -> None:
    api = Api(NotFound(404, "NotFound", "gone"), ApiError(422, "Invalid", "no"), None)
    keeper = GateKeeper(api, lambda _: None)  # type: ignore[arg-type]
    await keeper.open([gated(kit, name) for name in "abc"], {}, now_s=1.0, now=NOW)
    assert [path.split("/")[-2] for path, _ in api.patched] == ["a", "b", "c"]
