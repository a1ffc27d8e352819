"""A pool's quota over all nodes: never passed but by what new pods are promised, whatever is late
or lost, and shared evenly where it is short."""

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from onggi_core.heartbeat import Demand, Heartbeat, Mode, TierBytes
from onggi_operator.node_rounds import NodeRounds
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.nodes import NodeView
from onggi_operator.observe.pods import AgentSizes, PodView
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.pool import Pool, read_pool
from onggi_operator.resizer import Resizer
from onggi_operator.round_times import RoundTimes
from onggi_operator.tenancy import PoolQuota

UNIT: Final = 64 << 20
KEY = ("team-a", "chat")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"
ROOMY = 10**6


@dataclass
class Agent:
    """What is true of one, in units; `started` once it holds what it was made with."""

    floor: int
    ceiling: int
    budget: int = 0
    leaving: int = 0
    started: bool = False
    life: int = 1
    sequence: int = 0
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def held(self) -> int:
        return self.budget + self.leaving

    def start(self, *, kept: bool = False) -> None:
        """It may find its arena again, and give back what is above its floor in parts."""
        self.leaving = max(0, self.held - self.floor) if kept else 0
        self.budget, self.started = self.floor, True
        self.life, self.sequence = self.life + 1, 0

    def obey(self, told_bytes: int | None) -> None:
        if told_bytes is not None and (told := told_bytes // UNIT) != self.budget:
            self.leaving = max(0, self.held - told)
            self.budget = told


class Scene:
    """A pool on two nodes, and an operator that may be another one at any time."""

    def __init__(self, status_kit: Any, *, quota: int, nodes: dict[str, int]) -> None:
        self.agents: dict[str, Agent] = {}
        self.pods: dict[tuple[str, str], Any] = {}
        self.nodes = {
            ("", name): NodeView(name, f"u-{name}", units * UNIT, 0, ready=True, leaving=False)
            for name, units in nodes.items()
        }
        body = status_kit.body()
        body["spec"]["tiers"][0]["memory"] |= {"min": "64Mi", "max": f"{64 * 64}Mi"}
        body["spec"]["lifecycle"]["rampUp"] = "0s"
        body["spec"]["placement"] |= {"interval": "10s", "step": "4Gi"}
        self.pool = read_pool(body)
        self.set_quota(quota)
        self.now_s = 100.0
        self.start_operator()

    def set_quota(self, units: int) -> None:
        self.pool = replace(self.pool, quota=PoolQuota(memory_bytes=units * UNIT))

    def start_operator(self) -> None:
        self.fleet = Fleet(self.pods, self.nodes, {}, started_s=self.now_s, newborn_after=NEW)
        self.rounds = NodeRounds(
            None,  # type: ignore[arg-type] # plans ask nobody
            self,  # type: ignore[arg-type] # all of a world that rounds read
            self.fleet,
            lambda: self.now_s,
            RoundTimes(CollectorRegistry()),
            Resizer(None, allowed=False),  # type: ignore[arg-type]
            share=1.0,
        )

    def pools(self) -> dict[tuple[str, str], Pool]:
        return {KEY: self.pool}

    def fresh_s(self) -> float:
        return 30.0

    def add(self, uid: str, floor: int, ceiling: int, node: str = "n1") -> None:
        self.agents[uid] = Agent(floor, ceiling)
        sizes = AgentSizes(floor * UNIT, ceiling * UNIT, 0)
        self.pods["team-a", uid] = PodView(
            "team-a", uid, uid, "chat", OLD, None, running=True, deleting=False, node=node,
            request_bytes=floor * UNIT, sizes=sizes,
        )  # fmt: skip

    def remove(self, uid: str) -> None:
        del self.agents[uid], self.pods["team-a", uid]

    def say(self, uid: str) -> Heartbeat:
        agent = self.agents[uid]
        agent.sequence += 1
        held = TierBytes(agent.held * UNIT, 0)
        return Heartbeat(
            pool="chat", namespace="team-a", pod=uid, pod_uid=uid,
            node=self.pods["team-a", uid].node, epoch=f"{agent.life:08x}", mode=Mode.ACTIVE,
            capacity=held, used=TierBytes(), arena_ready_bytes=0, hits=None, lookups=None,  # type: ignore[arg-type]
            tokens_saved=0, evictions=0, errors={}, fingerprints=(), clients=1,
            sequence=agent.sequence, held=held,
            demand=Demand(agent.sequence * 1000, agent.curve),
        )  # fmt: skip

    def hear(self, beat: Heartbeat) -> int | None:
        self.fleet.hear(beat, now_s=self.now_s)
        return self.fleet.answer(beat.pod_uid)

    def plan(self) -> None:
        self.now_s += 2.0
        finish(self.rounds.plan(now=NEW))

    def rounds_until_rest(self, most: int = 40) -> list[dict[str, int]]:
        """All report and obey at once, round after round."""
        seen = []
        for _ in range(most):
            self.plan()
            for uid, agent in self.agents.items():
                if not agent.started:
                    agent.start()
                agent.obey(self.hear(self.say(uid)))
                agent.leaving = 0
                self.hear(self.say(uid))
            seen.append({uid: agent.budget for uid, agent in self.agents.items()})
        return seen

    @property
    def held(self) -> int:
        return sum(agent.held for agent in self.agents.values() if agent.started)

    def share(self) -> QuotaShare:
        found = self.rounds.quota_of(KEY)
        assert found is not None
        return found


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run what only ever yields to others."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        return


KIT: list[Any] = []


@pytest.fixture(autouse=True, scope="module")
def _kit(status_kit: Any) -> None:
    KIT.append(status_kit)


def scene(quota: int, **nodes: int) -> Scene:
    return Scene(KIT[0], quota=quota, nodes=nodes or {"n1": ROOMY, "n2": ROOMY})


def test_a_quota_is_shared_evenly_over_nodes() -> None:
    one = scene(20)
    for uid, node in (("a", "n1"), ("b", "n2"), ("c", "n2"), ("d", "n1")):
        one.add(uid, 1, 64, node)
    assert one.rounds_until_rest()[-1] == {"a": 5, "b": 5, "c": 5, "d": 5}
    assert one.share().used.memory_bytes == 20 * UNIT
    assert one.share().reached
    assert not one.share().exceeded


def test_without_a_quota_nodes_alone_bound() -> None:
    one = scene(20)
    one.pool = replace(one.pool, quota=PoolQuota(disk_bytes=1))
    one.add("a", 1, 64)
    assert one.rounds_until_rest()[-1] == {"a": 64}
    assert not one.share().exceeded
    assert not one.share().reached


def test_what_an_agent_cannot_use_is_lent_to_the_others() -> None:
    """Half of what the small node's pods leave is less than its agent's part."""
    one = scene(40, n1=ROOMY, n2=8)
    one.add("a", 1, 64, "n1")
    one.add("b", 1, 64, "n2")
    rest = one.rounds_until_rest()[-1]
    assert rest == {"a": 31, "b": 8}, "a unit is kept so that b shows when it can use more"
    one.nodes["", "n2"] = replace(one.nodes["", "n2"], memory_bytes=ROOMY * UNIT)
    assert one.rounds_until_rest()[-1] == {"a": 20, "b": 20}


def test_a_new_pod_is_made_room_for_before_it_starts() -> None:
    one = scene(20)
    one.add("a", 1, 64)
    assert one.rounds_until_rest()[-1] == {"a": 20}
    one.add("b", 4, 64, node="")  # not scheduled yet
    one.plan()
    assert one.fleet.answer("a") == 16 * UNIT
    assert one.share().used.memory_bytes == 24 * UNIT
    assert not one.share().exceeded, "the mins fit, and a gives back"
    one.agents["a"].obey(16 * UNIT)
    one.agents["a"].leaving = 0
    one.hear(one.say("a"))
    one.plan()
    assert one.share().used.memory_bytes == 20 * UNIT
    assert not one.share().exceeded


def test_a_quota_that_falls_takes_down_to_the_mins_and_no_further() -> None:
    one = scene(20)
    one.add("a", 4, 64)
    one.add("b", 4, 64, "n2")
    assert one.rounds_until_rest()[-1] == {"a": 10, "b": 10}
    one.set_quota(12)
    assert one.rounds_until_rest()[-1] == {"a": 6, "b": 6}
    one.set_quota(6)
    assert one.rounds_until_rest()[-1] == {"a": 4, "b": 4}
    assert one.share().exceeded


def test_an_operator_that_starts_anew_takes_nothing_and_gives_nothing_until_all_are_heard() -> None:
    one = scene(20)
    one.add("a", 1, 64)
    one.add("b", 1, 64, "n2")
    assert one.rounds_until_rest()[-1] == {"a": 10, "b": 10}
    one.start_operator()
    one.hear(one.say("a"))
    one.plan()
    assert one.fleet.answer("a") == 10 * UNIT
    assert one.rounds_until_rest(3) == [{"a": 10, "b": 10}] * 3


@pytest.mark.parametrize("flat", [(), ("b",), ("a", "c")])
def test_it_comes_to_rest(flat: tuple[str, ...]) -> None:
    """Also where some have no use for their part: nothing moves once all was tried."""
    one = scene(50, n1=ROOMY, n2=12)
    for uid, node in (("a", "n1"), ("b", "n2"), ("c", "n2")):
        one.add(uid, 1, 64, node)
        top = 0.11 if uid in flat else 0.9
        one.agents[uid].curve = ((UNIT, 0.1), (8 * UNIT, 0.11), (64 * UNIT, top))
    seen = one.rounds_until_rest(80)
    assert seen[-20:] == [seen[-1]] * 20
    assert all(sum(sizes.values()) <= 50 for sizes in seen)


UIDS = ("a", "b", "c", "d")


class LateQuota(RuleBasedStateMachine):
    """Reports and answers are lost, delayed and overtaken; pods, agents and operators come and go.

    `bound` is what agents may hold together: the quota, and the mins of pods that came since all
    was last quiet (they start with them, whatever others hold by then)."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = self.bound = 24
        self.scene = scene(self.quota, n1=20, n2=ROOMY)
        self.on_their_way: list[Heartbeat] = []

    def _alive(self, which: int) -> str | None:
        started = [uid for uid, agent in self.scene.agents.items() if agent.started]
        return sorted(started)[which % len(started)] if started else None

    @rule(uid=st.sampled_from(UIDS), floor=st.integers(1, 6), node=st.sampled_from(["n1", "n2"]))
    def pod_comes(self, uid: str, floor: int, node: str) -> None:
        """As the webhook admits it: while mins fit."""
        promised = sum(agent.floor for agent in self.scene.agents.values())
        if uid not in self.scene.agents and promised + floor <= self.quota:
            self.scene.add(uid, floor, 40, node)
            self.bound += floor

    @rule(uid=st.sampled_from(UIDS))
    def pod_starts(self, uid: str) -> None:
        if (agent := self.scene.agents.get(uid)) and not agent.started:
            agent.start()

    @rule(uid=st.sampled_from(UIDS))
    def pod_goes(self, uid: str) -> None:
        if uid in self.scene.agents:
            self.scene.remove(uid)
            self.on_their_way = [beat for beat in self.on_their_way if beat.pod_uid != uid]
            self.scene.now_s += 100.0  # its lease is over, so the same uid may come anew
            self.scene.plan()

    @rule(which=st.integers(0, 9), answered=st.booleans())
    def report(self, which: int, answered: bool) -> None:
        if uid := self._alive(which):
            told = self.scene.hear(self.scene.say(uid))
            if answered:
                self.scene.agents[uid].obey(told)

    @rule(which=st.integers(0, 9))
    def report_is_late(self, which: int) -> None:
        if uid := self._alive(which):
            self.on_their_way.append(self.scene.say(uid))

    @precondition(lambda self: self.on_their_way)
    @rule(which=st.integers(0, 9))
    def late_report_comes(self, which: int) -> None:
        self.scene.hear(self.on_their_way.pop(which % len(self.on_their_way)))

    @rule(which=st.integers(0, 9), part=st.integers(1, 20))
    def memory_leaves(self, which: int, part: int) -> None:
        if uid := self._alive(which):
            agent = self.scene.agents[uid]
            agent.leaving = max(0, agent.leaving - part)

    @rule(which=st.integers(0, 9), kept=st.booleans())
    def agent_restarts(self, which: int, kept: bool) -> None:
        if uid := self._alive(which):
            self.scene.agents[uid].start(kept=kept)

    @rule()
    def operator_restarts(self) -> None:
        self.scene.start_operator()
        self.on_their_way.clear()

    @rule(past_s=st.sampled_from([0.0, 9.0, 40.0]))
    def plan(self, past_s: float) -> None:
        """After a while without reports agents count as silent."""
        self.scene.now_s += past_s
        self.scene.plan()

    @rule()
    def all_is_quiet(self) -> None:
        self.on_their_way.clear()
        self.scene.rounds_until_rest(12)
        self.bound = self.quota

    @invariant()
    def the_quota_holds(self) -> None:
        assert self.scene.held <= self.bound


RULES = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLateQuota = LateQuota.TestCase
TestLateQuota.settings = RULES


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LateQuota, settings=settings(RULES, max_examples=3000, stateful_step_count=80)
    )
