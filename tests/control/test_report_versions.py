"""Agents of other versions report to this operator: what one side does not know is left out, and a
version that breaks with this one is answered with what to do."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import test_utils
from prometheus_client import CollectorRegistry

from onggi_core.heartbeat import Directive, Mode, TierBytes, parse_directive
from onggi_operator.heartbeat.desk import Desk
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import Caller
from onggi_operator.observe.fleet import AgentSnapshot, Fleet
from onggi_operator.observe.nodes import NodeView
from onggi_operator.observe.pods import AgentSizes

MIB = 1 << 20
NOW_S = 100.0
FIRST = {
    "version": 1,
    "pool": "chat",
    "namespace": "team-a",
    "pod": "one",
    "pod_uid": "uid-one",
    "node": "n1",
    "epoch": "0123456789abcdef",
    "mode": "Active",
    "capacity": {"host_bytes": 128 * MIB, "disk_bytes": 0},
    "used": {"host_bytes": 4 * MIB, "disk_bytes": 0},
    "arena_ready_bytes": 128 * MIB,
    "hits": {"host_blocks": 12, "disk_blocks": 0},
    "lookups": {"requests": 2, "blocks": 16, "miss_blocks": 4},
    "tokens_saved": 192,
    "evictions": 1,
    "errors": {},
    "fingerprints": ["ab" * 16],
    "clients": 1,
}
"""All that an agent of the first version says, and that every later one goes on saying."""

LATER = {
    **FIRST,
    "sequence": 1,
    "held": {"host_bytes": 192 * MIB, "disk_bytes": 0, "device_bytes": 7},
    "demand": {"asked_tokens": 256, "curve": [[64 * MIB, 0.5]], "by_hour": [1, 2]},
    "errors": {"of_a_kind_to_come": 3},
    "temperature": {"celsius": 40},
    "shed": None,
}
"""With fields and parts of fields that this operator does not know."""

KNOWN_TO_THE_FIRST = {"version": int, "mode": str, "interval_s": float}


class OnePod:
    """Whose token is not looked at."""

    async def caller(self, token: str) -> Caller:
        return Caller("team-a", "one", "uid-one")


class Operator:
    def __init__(self, kit: Any) -> None:
        sizes = AgentSizes(64 * MIB, 256 * MIB, 0)
        pod = kit.pod("one", node="n1", sizes=sizes)
        self.world = kit.world(pod)
        nodes = {("", "n1"): NodeView("n1", "n1", 1 << 30, 0, ready=True, leaving=False)}
        pods = {("team-a", "one"): pod}
        self.fleet = Fleet(pods, nodes, {}, started_s=0.0, newborn_after=kit.AFTER)
        server = HeartbeatServer(
            lambda: Desk(self.world, self.fleet),
            OnePod(),  # type: ignore[arg-type]
            lambda: NOW_S,
            CollectorRegistry(),
        )
        self.client = test_utils.TestClient(test_utils.TestServer(server.app()))

    async def answer(self, body: dict[str, Any]) -> tuple[int, Any, bytes]:
        headers = {"Authorization": "Bearer token"}
        async with self.client.post("/v1/heartbeat", json=body, headers=headers) as response:
            return response.status, await response.json(), await response.read()

    def agent(self) -> AgentSnapshot:
        self.fleet.look(now_s=NOW_S)
        node = self.fleet.node("n1", now_s=NOW_S)
        assert node is not None
        (agent,) = node.agents
        return agent

    def tokens_saved(self) -> int:
        (pool,) = self.world.snapshot(now_s=NOW_S)
        return int(pool.totals.tokens_saved)


@pytest.fixture
async def operator(status_kit: Any) -> AsyncIterator[Operator]:
    found = Operator(status_kit)
    async with found.client:
        yield found


@pytest.mark.parametrize(
    ("body", "held_bytes"), [(FIRST, 128 * MIB), (LATER, 192 * MIB)], ids=["first", "later"]
)
async def test_an_agent_of_another_time_is_served_and_counted(
    operator: Operator, body: dict[str, Any], held_bytes: int
) -> None:
    """One that does not say what it holds is charged its capacity."""
    status, _, answer = await operator.answer(body)
    assert status == 200
    assert parse_directive(answer).mode is Mode.ACTIVE
    assert operator.agent().held == TierBytes(held_bytes, 0)
    assert operator.tokens_saved() == 192
    assert (await operator.answer(body))[0] == 200
    assert operator.tokens_saved() == 192


async def test_the_first_agents_read_what_they_know_of_todays_directive(
    operator: Operator,
) -> None:
    """Version, mode and interval, in the form that they had; the rest they leave out."""
    await operator.answer(FIRST)
    operator.fleet.grant({"uid-one": 256 * MIB}, {"uid-one": 256 * MIB}, frozenset(), now_s=NOW_S)
    _, told, answer = await operator.answer(FIRST)
    assert parse_directive(answer) == Directive(Mode.ACTIVE, told["interval_s"], 256 * MIB)
    assert told["version"] == 1
    assert told["mode"] in ("Active", "Observe", "Paused")
    assert 1 <= told["interval_s"] <= 300
    assert {name: type(told[name]) for name in KNOWN_TO_THE_FIRST} == KNOWN_TO_THE_FIRST


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (2, "this operator is older than the agent: upgrade Onggi's chart"),
        (0, "the agent is older than this operator: make its pod anew"),
    ],
)
async def test_a_version_that_breaks_is_answered_with_what_to_do(
    operator: Operator, version: int, advice: str
) -> None:
    status, told, _ = await operator.answer({**FIRST, "version": version})
    assert (status, told) == (
        400,
        {"error": f"version: is {version}, this side speaks 1; {advice}"},
    )
    assert operator.agent().held is None
