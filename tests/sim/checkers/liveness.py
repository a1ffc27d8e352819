"""liveness: every request is answered once and in time, and a shrink ends when pins do."""

from __future__ import annotations

from typing import Final

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.life import Life
from tests.sim.trace import shown

from onggi_core.engine.actions import Action, Answer, Refuse
from onggi_core.engine.events import Asked, BudgetSet, Event, Stopping, Tick
from onggi_core.engine.loads import WAIT_MAX_S
from onggi_core.wire.requests import LoadPrepare

SHRINK_TICKS: Final = 4
"""Ticks that a shrink may take in which nobody holds anything, once all have let go of what they
held when it was told."""
ACTIONS_MAX: Final = 10_000
"""A step that asks for more than that at once is a loop: no world here has so many pages."""


class Liveness(Checker):
    name = "liveness"

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._answered: set[tuple[int, int]] = set()
        self._holders: set[object] = set()
        self._over_ticks = 0

    def after(self, event: Event, actions: list[Action]) -> None:
        if len(actions) > ACTIONS_MAX:
            raise self.broken(f"{len(actions)} actions in one step")
        for action in actions:
            if isinstance(action, Answer | Refuse):
                self._once(action)
        pending = self.life.ledger.pending
        if isinstance(event, Asked):
            late = pending.get((event.session, event.request_id))
            if late is not None and not self._may_wait(event):
                raise self.broken(f"{shown(event)} was not answered")
        elif isinstance(event, Stopping) and pending:
            raise self.broken(f"{len(pending)} requests wait on in an agent that ends")
        elif isinstance(event, Tick):
            self._in_time()
            self._shrinks()
        elif isinstance(event, BudgetSet):
            self._holders = self._holding()
            self._over_ticks = 0

    def walk(self) -> None:
        waiting = look.stats(self.life.engine)["waiting_loads"]
        if waiting != len(self.life.ledger.pending):
            raise self.broken(
                f"{waiting} loads wait, {len(self.life.ledger.pending)} are unanswered"
            )

    def rest(self) -> None:
        if self.life.ledger.pending:
            raise self.broken(f"{len(self.life.ledger.pending)} requests are unanswered at rest")
        ready, right = len(self.life.arena.ready), self.life.facts.extents
        if ready != right:
            raise self.broken(f"{ready} of {right} extents are there at rest")

    def _once(self, action: Answer | Refuse) -> None:
        request = action.session, action.request_id
        if request in self._answered:
            raise self.broken(f"answered twice: {shown(action)}")
        self._answered.add(request)
        if action.session not in self.life.peers:
            raise self.broken(f"an answer to a session that is gone: {shown(action)}")

    def _may_wait(self, asked: Asked) -> bool:
        request = asked.request
        return isinstance(request, LoadPrepare) and request.wait_ms > 0 and not self.life.stopping

    def _in_time(self) -> None:
        now_s = self.world.agenda.now_s
        for pending in self.life.ledger.pending.values():
            request = pending.asked.request
            assert isinstance(request, LoadPrepare)
            if now_s >= pending.sent_s + min(request.wait_ms / 1000, WAIT_MAX_S):
                raise self.broken(f"{shown(pending.asked)} was not answered by {now_s:.2f} s")

    def _holding(self) -> set[object]:
        """Everybody who may keep a page where it is."""
        ledger = self.life.ledger
        tickets = (("ticket", number) for number in (*ledger.grants, *ledger.loans))
        return {*tickets, *ledger.pending, *self.life.driver.jobs}

    def _shrinks(self) -> None:
        """More extents than the budget says, and all who held a page then have let go."""
        life = self.life
        self._holders &= self._holding()
        over = len(life.arena.ready) > life.budget.extents and not self._holders
        idle = not (life.ledger.grants or life.ledger.loans or life.driver.jobs)
        self._over_ticks += over and idle
        if self._over_ticks > SHRINK_TICKS:
            raise self.broken(f"{len(life.arena.ready)} extents are held, {life.budget}")
