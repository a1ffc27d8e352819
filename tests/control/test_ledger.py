"""The ledger: what agents really hold together never passes what the node gives.

A small world in which anything may be late: agents that grow at once and shrink slowly, answers and
reports that are lost or overtaken, restarts of agents and of the operator, agents that fall silent.
The ledger is told what a real one is told, and never what is true.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onggi_core.heartbeat import Demand, TierBytes
from onggi_operator.observe.accounts import Account, Report
from onggi_operator.plan.ledger import Claim, charged, settle


def claim(uid: str, **changes: object) -> Claim:
    made = Claim(uid, 1, 10, None, None, 1, speaks=True)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_an_agent_that_was_never_heard_is_charged_all_it_could_hold() -> None:
    assert claim("a", held_bytes=None).charged_bytes == 10


def test_nobody_else_can_have_told_a_newborn_agent_to_grow() -> None:
    assert claim("a", held_bytes=None, newborn=True).charged_bytes == 1


def test_what_was_told_and_what_was_shown_both_count() -> None:
    assert claim("a", held_bytes=3, granted_bytes=7).charged_bytes == 7
    assert claim("a", held_bytes=7, granted_bytes=3).charged_bytes == 7
    assert claim("a", held_bytes=3, granted_bytes=4, answered_bytes=9).charged_bytes == 9
    assert claim("a", held_bytes=0, granted_bytes=0).charged_bytes == 1


def test_growth_waits_for_what_was_shrunk_to_be_reported_gone() -> None:
    big, small = claim("a", held_bytes=8, granted_bytes=8), claim("b", held_bytes=2)
    targets = {"a": 4, "b": 6}
    assert settle([big, small], targets, 10) == {"a": 4, "b": 2}
    told = replace(big, granted_bytes=4)
    assert settle([told, small], targets, 10) == {"a": 4, "b": 2}, "8 are still held"
    assert settle([replace(told, held_bytes=5), small], targets, 10) == {"a": 4, "b": 5}
    assert settle([replace(told, held_bytes=4), small], targets, 10) == {"a": 4, "b": 6}


def test_who_does_not_hear_is_told_nothing_and_goes_on_being_charged() -> None:
    silent, other = claim("a", held_bytes=8, speaks=False), claim("b", held_bytes=1)
    assert settle([silent, other], {"a": 1, "b": 9}, 10) == {"b": 2}


def test_more_room_is_never_less_for_anyone() -> None:
    claims = [claim("a", held_bytes=2), claim("b", held_bytes=3), claim("c", held_bytes=1)]
    targets = {"a": 7, "b": 9, "c": 5}
    before = settle(claims, targets, 0)
    for offered in range(1, 30):
        after = settle(claims, targets, offered)
        assert all(after[uid] >= before[uid] for uid in before)
        before = after


def test_at_rest_the_same_is_told_again() -> None:
    claims = [claim("a", held_bytes=4, granted_bytes=4), claim("b", held_bytes=6, granted_bytes=6)]
    assert settle(claims, {"a": 4, "b": 6}, 10) == {"a": 4, "b": 6}


@dataclass
class Agent:
    """What is true of one. `leaving` is what it still holds above its budget."""

    uid: str
    floor: int
    ceiling: int
    budget: int
    leaving: int = 0
    life: int = 1
    sequence: int = 0
    confirms: str = ""

    @property
    def held(self) -> int:
        return self.budget + self.leaving

    def obey(self, told: int | None) -> None:
        if told is not None and told != self.budget:
            total = self.held
            self.budget = told
            self.leaving = max(0, total - told)


@dataclass(frozen=True)
class Said:
    """A report on its way."""

    uid: str
    epoch: str
    sequence: int
    held: int
    asked: int
    confirms: str = ""


AGENTS = ("a", "b", "c")
OFFERED = 30


class LateWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1.0
        self.agents = {uid: Agent(uid, 2, 20, 2) for uid in AGENTS}
        self.accounts: dict[str, Account] = {}
        self.on_their_way: list[Said] = []
        self.silent: set[str] = set()

    def _claims(self) -> list[Claim]:
        return [
            Claim(
                uid,
                agent.floor,
                agent.ceiling,
                account.granted_bytes if account else None,
                account.answered_bytes if account else None,
                account.held.host_bytes if account and account.held else None,
                speaks=uid not in self.silent,
            )
            for uid, agent in self.agents.items()
            for account in [self.accounts.get(uid)]
        ]

    def _say(self, uid: str) -> Said:
        agent = self.agents[uid]
        agent.sequence += 1
        life = f"{agent.life:08x}"
        return Said(uid, life, agent.sequence, agent.held, agent.sequence, agent.confirms)

    def _hear(self, said: Said) -> tuple[int | None, str]:
        """The size that is answered, and the mark to repeat."""
        self.now_s += 0.001
        account = self.accounts.setdefault(said.uid, Account(said.uid, "n1", 0.0, 0.0))
        report = account.hear(BEAT(said), now_s=self.now_s)
        if report is Report.TAKEN:
            return account.answer(), ""
        return None, account.mark if report is Report.DOUBTED else ""

    @rule(uid=st.sampled_from(AGENTS))
    def report(self, uid: str) -> None:
        agent = self.agents[uid]
        told, mark = self._hear(self._say(uid))
        agent.obey(told)
        agent.confirms = mark or agent.confirms
        self.silent.discard(uid)

    @rule(uid=st.sampled_from(AGENTS))
    def report_again_at_once(self, uid: str) -> None:
        """As an agent does that is asked to: it is believed then, whatever came before."""
        self.report(uid)
        self.report(uid)
        assert self.accounts[uid].epoch == f"{self.agents[uid].life:08x}"

    @rule(uid=st.sampled_from(AGENTS))
    def report_whose_answer_is_lost(self, uid: str) -> None:
        self._hear(self._say(uid))

    @rule(uid=st.sampled_from(AGENTS))
    def report_that_is_late(self, uid: str) -> None:
        """Its agent gave up on the answer; the report comes sometime."""
        self.on_their_way.append(self._say(uid))

    @rule(which=st.integers(0, 9))
    def late_report_comes(self, which: int) -> None:
        if self.on_their_way:
            self._hear(self.on_their_way.pop(which % len(self.on_their_way)))

    @rule(uid=st.sampled_from(AGENTS), part=st.integers(1, 20))
    def memory_leaves(self, uid: str, part: int) -> None:
        agent = self.agents[uid]
        agent.leaving = max(0, agent.leaving - part)

    @rule(uid=st.sampled_from(AGENTS), kept=st.booleans())
    def agent_restarts(self, uid: str, kept: bool) -> None:
        """It may find its arena again, and give back what is above its floor a part at a time."""
        agent = self.agents[uid]
        agent.leaving = agent.held - agent.floor if kept else 0
        agent.budget, agent.sequence, agent.confirms = agent.floor, 0, ""
        agent.life += 1

    @rule(uid=st.sampled_from(AGENTS))
    def agent_falls_silent(self, uid: str) -> None:
        self.silent.add(uid)

    @rule()
    def operator_restarts(self) -> None:
        """Answers of the last one arrived or did not; nothing of it is on its way any more, and
        neither are reports, which went to it."""
        self.accounts.clear()
        self.on_their_way.clear()

    @rule(wanted=st.fixed_dictionaries({uid: st.integers(2, 20) for uid in AGENTS}))
    def plan(self, wanted: dict[str, int]) -> None:
        """Any targets at all, so long as the node could give them."""
        if sum(wanted.values()) > OFFERED:
            return
        for uid, told in settle(self._claims(), wanted, OFFERED).items():
            self.accounts[uid].granted_bytes = told

    @invariant()
    def agents_never_hold_more_than_they_are_charged(self) -> None:
        for one in self._claims():
            assert self.agents[one.uid].held <= one.charged_bytes, one

    @invariant()
    def the_node_never_gives_more_than_it_has(self) -> None:
        assert sum(agent.held for agent in self.agents.values()) <= OFFERED

    @invariant()
    def what_is_charged_grows_only_into_room(self) -> None:
        known = [one for one in self._claims() if one.held_bytes is not None]
        if len(known) == len(AGENTS):
            assert charged(known) <= OFFERED


def BEAT(said: Said) -> "Beat":  # noqa: N802 - stands for the class it makes
    held, asked = TierBytes(said.held), Demand(said.asked)
    return Beat(said.epoch, said.sequence, held, asked, said.confirms)


@dataclass(frozen=True)
class Beat:
    """As much of a heartbeat as an account reads."""

    epoch: str
    sequence: int
    held: TierBytes
    demand: Demand
    confirms: str
    node: str = "n1"
    capacity: TierBytes = TierBytes()  # noqa: RUF009 - frozen
    used: TierBytes = TierBytes()  # noqa: RUF009 - frozen
    arena_ready_bytes: int = 0
    pending_blocks: int = 0
    draining: bool = False


def test_a_first_report_that_comes_after_the_next_lifes_is_not_believed() -> None:
    """What a long run found: the report of a life that nobody had heard of, late by a restart."""
    world = LateWorld()
    world.report_that_is_late("a")
    world.agent_restarts("a", kept=False)
    for uid in AGENTS:
        world.report(uid)
    world.plan({"a": 3, "b": 2, "c": 2})
    world.report("a")
    assert world.agents["a"].held == 3
    world.late_report_comes(0)
    world.agents_never_hold_more_than_they_are_charged()
    world.report("a")
    assert world.accounts["a"].epoch == f"{2:08x}"


TestLateWorld = LateWorld.TestCase
TestLateWorld.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LateWorld, settings=settings(max_examples=5000, stateful_step_count=80, deadline=None)
    )
