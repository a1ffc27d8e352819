"""The engine under any order of events: no wrong byte, no page with two owners, budgets kept.

Most of what must hold is asserted inside the shell, at the moment an answer is given; here are the
moves and what must hold between them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from shell import PAGE, Shell, chain, spec
from walker import check

from onggi_core.engine import leaving
from onggi_core.engine.events import BudgetSet, GoOn, Idle, IoOutcome, Tick
from onggi_core.identity import ROOT
from onggi_core.wire.requests import Discard, LoadOutcome, StoreOutcome

SPACES = [spec("a"), spec("b"), spec("wide", page_bytes=PAGE + 1)]
CHAINS = [chain(name, 5) for name in ("one", "two", "three")]
PAGES_EACH = 4
EXTENTS, SEGMENTS = 3, 3

chains = st.sampled_from(CHAINS)
picks = st.integers(min_value=0, max_value=1000)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(extents=EXTENTS, segments=SEGMENTS, pages_each=PAGES_EACH)

    def _pick(self, of: dict, pick: int):
        return list(of)[pick % len(of)]

    @precondition(lambda self: len(self.shell.sessions) < 4)
    @rule(which=st.sampled_from([(0,), (1,), (0, 1), (2,)]))
    def connect(self, which) -> None:
        self.shell.open(*[SPACES[i] for i in which])

    @precondition(lambda self: self.shell.sessions)
    @rule(pick=picks)
    def die(self, pick) -> None:
        self.shell.close(self._pick(self.shell.sessions, pick))

    @precondition(lambda self: self.shell.sessions)
    @rule(pick=picks, keys=chains, begin=st.integers(0, 4), end=st.integers(1, 5))
    def prepare_store(self, pick, keys, begin, end) -> None:
        session = self._pick(self.shell.sessions, pick)
        space = pick % len(self.shell.sessions[session])
        parent = keys[begin - 1] if begin else ROOT
        self.shell.prepare(session, keys[begin:end], parent, space)

    @precondition(lambda self: self.shell.sessions)
    @rule(pick=picks, pages=st.integers(0, 6))
    def ask_room(self, pick, pages) -> None:
        session = self._pick(self.shell.sessions, pick)
        self.shell.ask_room(session, pages, pick % len(self.shell.sessions[session]))

    @precondition(lambda self: any(store.room for store in self.shell.stores.values()))
    @rule(pick=picks, keys=chains, begin=st.integers(0, 4), wanted=st.integers(0, 3))
    def store_to_room(self, pick, keys, begin, wanted) -> None:
        rooms = {ticket: store for ticket, store in self.shell.stores.items() if store.room}
        room = self._pick(rooms, pick)
        parent = keys[begin - 1] if begin else ROOT
        self.shell.store_to(room, keys[begin:][: len(rooms[room].slots)], parent, wanted)

    @precondition(lambda self: self.shell.stores)
    @rule(pick=picks)
    def fill(self, pick) -> None:
        self.shell.fill(self._pick(self.shell.stores, pick))

    @precondition(lambda self: self.shell.stores)
    @rule(pick=picks, outcome=st.sampled_from(StoreOutcome))
    def complete_store(self, pick, outcome) -> None:
        ticket = self._pick(self.shell.stores, pick)
        if outcome is StoreOutcome.SEALED:
            self.shell.fill(ticket)
        self.shell.complete(ticket, outcome)

    @precondition(lambda self: self.shell.sessions)
    @rule(pick=picks, keys=chains, wait_ms=st.sampled_from([0, 50]))
    def prepare_load(self, pick, keys, wait_ms) -> None:
        self.shell.load(self._pick(self.shell.sessions, pick), keys, wait_ms)

    @precondition(lambda self: self.shell.loads)
    @rule(pick=picks, outcome=st.sampled_from(LoadOutcome))
    def complete_load(self, pick, outcome) -> None:
        self.shell.finish(self._pick(self.shell.loads, pick), outcome)

    @precondition(lambda self: self.shell.sessions)
    @rule(pick=picks, keys=chains, begin=st.integers(0, 4), end=st.integers(1, 5))
    def discard(self, pick, keys, begin, end) -> None:
        session = self._pick(self.shell.sessions, pick)
        self.shell.ask(session, Discard(tuple(keys[begin:end])))

    @precondition(lambda self: self.shell.jobs)
    @rule(
        pick=picks,
        outcomes=st.lists(
            st.sampled_from([*[IoOutcome.DONE] * 6, *IoOutcome]), min_size=1, max_size=3
        ),
    )
    def end_job(self, pick, outcomes) -> None:
        self.shell.end_job(self._pick(self.shell.jobs, pick), *outcomes)

    @rule(extents=st.integers(0, EXTENTS), segments=st.integers(0, SEGMENTS))
    def set_budget(self, extents, segments) -> None:
        self.shell.step(BudgetSet(extents, segments))

    @precondition(lambda self: self.shell.touching)
    @rule(pick=picks, refused=st.booleans())
    def touch(self, pick, refused) -> None:
        self.shell.touch(self._pick(self.shell.touching, pick), refused=refused)

    @precondition(lambda self: self.shell.disk)
    @rule(pick=picks)
    def damage(self, pick) -> None:
        self.shell.disk[self._pick(self.shell.disk, pick)] = b"flipped"

    @rule(by_s=st.sampled_from([0.1, 31.0]))
    def time_goes_by(self, by_s) -> None:
        self.shell.now_s += by_s
        if by_s > 30:
            # a client that keeps the rules uses no pin past its lease; a store's pages it may
            self.shell.loads.clear()
        self.shell.step(Tick())

    @invariant()
    def budgets_are_kept(self) -> None:
        stats = self.shell.stats()
        assert stats["host_used_bytes"] <= len(self.shell.extents_held) * PAGES_EACH * PAGE
        assert stats["disk_used_bytes"] <= SEGMENTS * PAGES_EACH * PAGE

    @invariant()
    def everything_agrees(self) -> None:
        check(self.shell.engine)

    @invariant()
    def open_loads_still_hold_their_bytes(self) -> None:
        for load in self.shell.loads.values():
            self.shell.check_bytes(load)

    @precondition(lambda self: self.shell.engine.curious)
    @rule()
    def idle(self) -> None:
        self.shell.step(Idle())

    @precondition(lambda self: self.shell.engine.busy)
    @rule()
    def go_on(self) -> None:
        self.shell.step(GoOn())

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        assert len(self.shell.asked_loads) == self.shell.stats()["waiting_loads"]

    def teardown(self) -> None:
        """When all clients are gone and the disk is done, nothing is held by anybody."""
        for session in tuple(self.shell.sessions):
            self.shell.close(session)
        self.shell.end_jobs()
        while self.shell.engine.busy:
            self.shell.step(GoOn())
        stats = self.shell.stats()
        for held in ("open_stores", "open_loads", "waiting_loads", "sessions"):
            assert stats[held] == 0, held
        state = self.shell.engine._state
        assert not state.waiting
        assert not state.writes
        assert not state.reads
        for tier in (state.host, state.disk):
            assert not any(tier.pages.pins)
            assert not tier.dead.blocks
        check(self.shell.engine)


class InSmallParts(AnyOrder):
    """Where no step takes more than one page apart, so that anything can come in between."""

    def __init__(self) -> None:
        super().__init__()
        self._parts = leaving.PART, leaving.PINS_A_PAGE
        leaving.PART = leaving.PINS_A_PAGE = 1  # type: ignore[misc]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            leaving.PART, leaving.PINS_A_PAGE = self._parts  # type: ignore[misc]


OFTEN = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
AnyOrder.TestCase.settings = InSmallParts.TestCase.settings = OFTEN
TestAnyOrder = AnyOrder.TestCase
TestInSmallParts = InSmallParts.TestCase
