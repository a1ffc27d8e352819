"""Pods' requests that follow grants: in step at every moment, at rest when nothing changes, and
never a reason to offer less.

A node in small: agents that grow at once and shrink slowly, an API server that holds requests to
limits, and a kubelet that takes them in a round later, or does not.
"""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi_core.heartbeat import (
    Demand,
    Heartbeat,
    Lookups,
    Mode,
    TierBlocks,
    TierBytes,
)
from onggi_core.quantity import format_quantity, parse_quantity
from onggi_operator.kube.client import ApiError, Conflict
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.nodes import NodeView
from onggi_operator.observe.pods import PodView, project_pod
from onggi_operator.plan.allocation import look_at
from onggi_operator.plan.grants import NodePlan, plan_node
from onggi_operator.plan.resizes import BLOCKED_S, ResizeState
from onggi_operator.pool import Pool, read_pool
from onggi_operator.resizer import AGAIN_S, ASKED_PER_ROUND_MAX, Resizer

MIB = 1 << 20
UNIT = 64 * MIB
OVERHEAD = 192 * MIB
OLD, NEW = "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z"
KEY = ("team-a", "chat")
ROUND_S = AGAIN_S


@pytest.fixture
def pool(status_kit: Any) -> Pool:
    body = status_kit.body()
    body["spec"]["placement"] |= {"resize": "Requests", "interval": "10s", "step": "256Mi"}
    body["spec"]["lifecycle"]["rampUp"] = "0s"
    body["spec"]["tiers"][0]["memory"] |= {"min": "64Mi", "max": "1Gi"}
    return read_pool(body)


def agent_pod(uid: str, floor: int, ceiling: int, **spec: Any) -> dict[str, Any]:
    """As the webhook makes one; sizes in units."""
    env = {"ONGGI_AGENT_MEMORY": floor * UNIT, "ONGGI_AGENT_MEMORY_MAX": ceiling * UNIT}
    agent = {
        "name": "onggi-agent",
        "restartPolicy": "Always",
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "resources": {
            "requests": {"memory": format_quantity(floor * UNIT + OVERHEAD)},
            "limits": {"memory": format_quantity(ceiling * UNIT + OVERHEAD)},
        },
    }
    return {
        "metadata": {
            "namespace": "team-a", "name": uid, "uid": uid, "creationTimestamp": OLD,
            "annotations": {"onggi.dev/pool": "chat"},
        },
        "spec": {"nodeName": "n1", "initContainers": [agent], "containers": [], **spec},
        "status": {"phase": "Running"},
    }  # fmt: skip


def view(pod: dict[str, Any]) -> PodView:
    seen = project_pod(pod)
    assert isinstance(seen, PodView)
    return seen


class Agent:
    """What is true of one; sizes in bytes."""

    def __init__(self, uid: str, floor: int) -> None:
        self.uid, self.budget, self.leaving, self.said = uid, floor * UNIT, 0, 0
        self.curve: tuple[tuple[int, float], ...] = ()

    @property
    def held(self) -> int:
        return self.budget + self.leaving

    def obey(self, told: int | None) -> None:
        """What is too much leaves by halves, and a rest at once."""
        self.leaving = self.leaving // 2 // UNIT * UNIT
        if told is not None and told != self.budget:
            self.leaving = max(0, self.held - told)
            self.budget = told


class Node:
    """`room` is what the kubelet has for pods' requests, in units of the arena beyond overheads."""

    def __init__(
        self, pool: Pool, sizes: Sequence[tuple[int, int]], memory: int, room: int
    ) -> None:
        self.pools = {KEY: pool}
        self.bodies = {f"p{n}": agent_pod(f"p{n}", *both) for n, both in enumerate(sizes)}
        self.agents = {f"p{n}": Agent(f"p{n}", floor) for n, (floor, _) in enumerate(sizes)}
        self.room_bytes = room * UNIT + len(sizes) * OVERHEAD
        self.refuses: Exception | None = None
        self.patches: list[tuple[str, int]] = []
        self.now_s = 1000.0
        nodes = {("", "n1"): NodeView("n1", "n1", memory * UNIT, 0, ready=True, leaving=False)}
        self.pods: dict[Key, PodView] = {}
        self.fleet = Fleet(self.pods, nodes, {}, started_s=0.0, newborn_after=NEW)
        self.resizer = Resizer(self, allowed=True)  # type: ignore[arg-type] # the API in small
        self.plan: NodePlan
        self.kubelet()
        self.watch()

    async def patch(self, path: str, body: Any, *, kind: str) -> None:
        assert kind == "application/strategic-merge-patch+json"
        uid = path.removeprefix("/api/v1/namespaces/team-a/pods/").removesuffix("/resize")
        assert body["metadata"] == {"uid": uid}
        if self.refuses is not None:
            raise self.refuses
        (changed,) = body["spec"]["initContainers"]
        assert changed.keys() == {"name", "resources"}
        resources = self.bodies[uid]["spec"]["initContainers"][0]["resources"]
        wanted = changed["resources"]["requests"]["memory"]
        assert parse_quantity(wanted) < parse_quantity(resources["limits"]["memory"])
        resources["requests"]["memory"] = wanted
        self.patches.append((uid, parse_quantity(wanted)))

    def asked(self, uid: str) -> int:
        resources = self.bodies[uid]["spec"]["initContainers"][0]["resources"]
        return parse_quantity(resources["requests"]["memory"])

    def given(self, uid: str) -> int:
        (status,) = self.bodies[uid]["status"]["initContainerStatuses"]
        return parse_quantity(status["resources"]["requests"]["memory"])

    def started(self, uid: str) -> bool:
        return "initContainerStatuses" in self.bodies[uid]["status"]

    def kubelet(self) -> None:
        """Takes in what there is room for, what became less first."""
        for uid in sorted(self.bodies, key=lambda uid: (self.asked(uid), uid)):
            status = self.bodies[uid]["status"]
            known = [one for one in self.bodies if one != uid and self.started(one)]
            others = sum(self.given(one) for one in known)
            fits = others + self.asked(uid) <= self.room_bytes
            if fits or not self.started(uid):
                requests = {"memory": format_quantity(self.asked(uid))}
                status["initContainerStatuses"] = [
                    {"name": "onggi-agent", "resources": {"requests": requests}}
                ]
            pending = self.given(uid) != self.asked(uid)
            told = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
            status["conditions"] = [told] if pending else []

    def watch(self) -> None:
        self.pods.update({("team-a", uid): view(body) for uid, body in self.bodies.items()})

    def hear(self) -> None:
        for agent in self.agents.values():
            agent.said += 1
            self.fleet.hear(beat(agent), now_s=self.now_s)
            agent.obey(self.fleet.answer(agent.uid))

    def think(self) -> None:
        self.fleet.look(now_s=self.now_s)
        self.resizer.begin(now_s=self.now_s)
        node = self.fleet.node("n1", now_s=self.now_s)
        assert node
        resizing = self.resizer.look(node.agents, self.pools, now_s=self.now_s)
        self.plan = plan = plan_node(
            node, self.pools, now_s=self.now_s, fresh_s=60.0, resizing=resizing
        )
        self.resizer.note(plan.asks)
        self.fleet.grant(
            plan.sharing.sizes, plan.told, plan.moved, now_s=self.now_s, backed=plan.backed
        )
        if plan.looked:
            self.fleet.looked("n1", now_s=self.now_s)

    async def round(self) -> None:
        self.now_s += ROUND_S
        self.hear()
        self.in_step()
        self.think()
        await self.resizer.write(now_s=self.now_s)
        self.in_step()
        self.hear()
        self.in_step()
        self.kubelet()
        self.watch()

    def full(self) -> frozenset[Key]:
        """Pools whose agents have all that they may have here, although they could use more."""
        seen = self.fleet.node("n1", now_s=self.now_s)
        assert seen
        return look_at(seen, self.plan, now_s=self.now_s).full

    def in_step(self) -> None:
        """What an agent holds is requested, and known to the kubelet; and the ledger holds."""
        for uid, agent in self.agents.items():
            asked, given = self.asked(uid), self.given(uid)
            limit = view(self.bodies[uid]).request
            assert limit is None or agent.held + OVERHEAD <= min(asked, given) + MIB
        if hasattr(self, "plan"):
            assert sum(agent.held for agent in self.agents.values()) <= self.plan.offered_bytes


def beat(agent: Agent) -> Heartbeat:
    return Heartbeat(
        pool="chat", namespace="team-a", pod=agent.uid, pod_uid=agent.uid, node="n1",
        epoch="0123456789abcdef", mode=Mode.ACTIVE, capacity=TierBytes(agent.budget, 0),
        held=TierBytes(agent.held, 0), used=TierBytes(), arena_ready_bytes=agent.budget,
        hits=TierBlocks(0, 0), lookups=Lookups(0, 0, 0), tokens_saved=0, evictions=0, errors={},
        fingerprints=(), clients=1, sequence=agent.said,
        demand=Demand(agent.said * 10_000, agent.curve),
    )  # fmt: skip


async def rounds(node: Node, count: int) -> None:
    for _ in range(count):
        await node.round()


@pytest.mark.parametrize(
    ("said", "pending"),
    [
        ({"observedGeneration": 3}, "Deferred"),
        ({"observedGeneration": 2}, ""),
        ({}, "Deferred"),
    ],
    ids=["of this request", "of the one before", "a kubelet that does not say"],
)
def test_a_kubelets_word_is_of_what_it_has_looked_at(said: dict[str, int], pending: str) -> None:
    """Else what is asked for next would be taken for refused as well, and halved again."""
    pod = agent_pod("p0", 2, 8)
    pod["metadata"]["generation"] = 3
    given = {"name": "onggi-agent", "resources": {"requests": {"memory": f"{UNIT + OVERHEAD}"}}}
    told = {"type": "PodResizePending", "status": "True", "reason": "Deferred", **said}
    pod["status"] |= {"initContainerStatuses": [given], "conditions": [told]}
    request = view(pod).request
    assert request is not None
    assert (request.asked_bytes, request.given_bytes) == (2 * UNIT + OVERHEAD, UNIT + OVERHEAD)
    assert request.pending == pending


def test_what_a_kubelet_has_reserved_counts_and_its_runtime_may_lag_behind() -> None:
    """As kubelets of 1.34 tell it; those before have the second alone."""
    pod = agent_pod("p0", 2, 8)
    told = {"name": "onggi-agent", "resources": {"requests": {"memory": f"{UNIT + OVERHEAD}"}}}
    pod["status"]["initContainerStatuses"] = [told]
    seen = view(pod).request
    assert seen is not None
    assert seen.given_bytes == UNIT + OVERHEAD
    told["allocatedResources"] = {"memory": f"{2 * UNIT + OVERHEAD}"}
    seen = view(pod).request
    assert seen is not None
    assert seen.given_bytes == 2 * UNIT + OVERHEAD
    assert seen.backs() == 2 * UNIT


async def test_the_request_comes_before_the_growth_and_goes_after_the_shrink(pool: Pool) -> None:
    node = Node(pool, [(1, 8)], memory=32, room=16)
    assert (node.asked("p0"), node.agents["p0"].held) == (UNIT + OVERHEAD, UNIT)
    await node.round()
    grown = node.plan.told["p0"]
    assert grown == 8 * UNIT
    assert node.patches == [("p0", grown + OVERHEAD - MIB)]
    assert node.agents["p0"].held == UNIT, "told to grow before the kubelet had the request"
    await node.round()
    assert node.agents["p0"].held == grown
    node.pools[KEY] = with_max(pool, 4)
    await node.round()
    assert node.agents["p0"].budget == 4 * UNIT
    assert node.agents["p0"].held > 4 * UNIT
    assert len(node.patches) == 1, "lowered while more was held"
    await rounds(node, 4)
    assert node.patches[1:] == [("p0", 4 * UNIT + OVERHEAD)]
    assert node.agents["p0"].held == 4 * UNIT


def with_max(pool: Pool, units: int) -> Pool:
    return replace(pool, memory=replace(pool.memory, max_bytes=units * UNIT))


async def test_what_is_granted_and_requested_does_not_shrink_what_is_offered(pool: Pool) -> None:
    """Requests that follow grants are not what other pods ask for: each grant would leave less to
    give, and the next round would take it back."""
    node = Node(pool, [(1, 8), (2, 8)], memory=16, room=32)
    offers = []
    for _ in range(12):
        await node.round()
        offers.append(node.plan.offered_bytes)
    assert len(set(offers)) == 1
    assert sum(node.asked(uid) for uid in node.bodies) > 3 * UNIT + 2 * OVERHEAD
    assert len(node.patches) == 2


async def test_an_agent_whose_node_defers_stays_as_it_is_and_asks_again_later(pool: Pool) -> None:
    node = Node(pool, [(1, 8)], memory=32, room=1)
    await rounds(node, 9)
    assert node.agents["p0"].held == UNIT
    assert node.plan.resizes == {"p0": ResizeState.DEFERRED}
    assert node.full() == {KEY}, "the pool's condition says why there is no more"
    assert node.asked("p0") == UNIT + OVERHEAD, "what is deferred holds no room against others"
    asked = len(node.patches)
    await rounds(node, int(BLOCKED_S / ROUND_S) - 10)
    assert len(node.patches) == asked
    node.room_bytes += 8 * UNIT
    await rounds(node, 12)
    assert node.agents["p0"].held == 8 * UNIT
    assert node.plan.resizes == {"p0": ResizeState.IN_STEP}
    assert node.full() == set()


async def test_each_time_that_is_in_vain_is_twice_as_far_from_the_next(pool: Pool) -> None:
    node = Node(pool, [(1, 8)], memory=32, room=1)
    tries = []
    for _ in range(200):
        before = len(node.patches)
        await node.round()
        if any(size > 7 * UNIT + OVERHEAD for _, size in node.patches[before:]):
            tries.append(node.now_s)
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert len(tries) == 3
    assert gaps[1] > 1.8 * gaps[0] > 1.8 * BLOCKED_S


async def test_what_the_api_server_refuses_leaves_the_agent_as_it_is(pool: Pool) -> None:
    node = Node(pool, [(1, 8)], memory=32, room=16)
    node.refuses = ApiError(403, "Forbidden", "exceeded quota")
    await rounds(node, 3)
    assert node.agents["p0"].held == UNIT
    assert node.plan.resizes == {"p0": ResizeState.REFUSED}
    node.refuses = Conflict(409, "Conflict", "changed meanwhile")
    node.now_s += BLOCKED_S
    await rounds(node, 2)
    assert node.plan.resizes == {"p0": ResizeState.IN_STEP}
    node.refuses = None
    await rounds(node, 3)
    assert node.agents["p0"].held == 8 * UNIT


async def test_what_does_not_fit_whole_is_tried_by_halves(pool: Pool) -> None:
    node = Node(pool, [(1, 8), (1, 8)], memory=32, room=6)
    await rounds(node, 12)
    held = sorted(agent.held // UNIT for agent in node.agents.values())
    assert held == [2, 4]


async def test_an_installation_that_does_not_allow_it_leaves_pods_and_grants_alone(
    pool: Pool,
) -> None:
    node = Node(pool, [(1, 8)], memory=32, room=16)
    node.resizer = Resizer(node, allowed=False)  # type: ignore[arg-type]
    node.in_step = lambda: None  # type: ignore[method-assign] # requests stay at min
    await rounds(node, 3)
    assert node.patches == []
    assert node.agents["p0"].held == 8 * UNIT
    assert node.plan.resizes == {"p0": ResizeState.NOT_ALLOWED}


async def test_pods_are_changed_a_few_at_a_time(pool: Pool) -> None:
    node = Node(pool, [(1, 3)] * (ASKED_PER_ROUND_MAX + 4), memory=128, room=64)
    counts = []
    for _ in range(4):
        before = len(node.patches)
        await node.round()
        counts.append(len(node.patches) - before)
    assert counts == [ASKED_PER_ROUND_MAX, 4, 0, 0]


@settings(max_examples=30, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    sizes=st.lists(
        st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, n + 12))),
        min_size=1,
        max_size=4,
    ),
    memory=st.integers(8, 64),
    room=st.integers(0, 48),
    hits=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
)
def test_it_comes_to_rest_and_is_in_step_on_the_way(
    pool: Pool, sizes: list[tuple[int, int]], memory: int, room: int, hits: list[float]
) -> None:
    """Within twenty rounds of the last thing that happened, and well before who was refused is
    tried again, no request changes any more and nobody is told anything new."""
    asyncio.run(_comes_to_rest(pool, sizes, memory, room, hits))


async def _comes_to_rest(
    pool: Pool, sizes: list[tuple[int, int]], memory: int, room: int, hits: list[float]
) -> None:
    needed = sum(floor for floor, _ in sizes)
    node = Node(pool, sizes, memory=memory + needed + 3 * len(sizes), room=room + needed)
    for agent, rate in zip(node.agents.values(), hits, strict=False):
        agent.curve = ((UNIT, rate / 8), (4 * UNIT, rate / 2), (16 * UNIT, rate))
    offers = []
    for _ in range(20):
        await node.round()
        offers.append(node.plan.offered_bytes)
    changed, told = len(node.patches), dict(node.plan.told)
    await rounds(node, 8)
    assert len(set(offers)) == 1
    assert node.patches[changed:] == []
    assert node.plan.told == told
    for uid, agent in node.agents.items():
        assert agent.held == told[uid]
