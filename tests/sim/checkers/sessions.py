"""sessions: the end of a stream gives back all that its client held."""

from __future__ import annotations

from tests.sim import look
from tests.sim.checkers.base import Checker

from onggi_core.engine.actions import Action
from onggi_core.engine.events import Event, SessionClosed


class Sessions(Checker):
    name = "sessions"

    def after(self, event: Event, actions: list[Action]) -> None:
        if not isinstance(event, SessionClosed):
            return
        self.world.happened["session ended"] += 1
        if left := look.held_by(self.life.engine, event.session):
            raise self.broken(f"session {event.session} is gone and still holds {left}")

    def walk(self) -> None:
        stats, ledger = look.stats(self.life.engine), self.life.ledger
        if stats["sessions"] != len(self.life.peers):
            raise self.broken(f"{stats['sessions']} sessions, {len(self.life.peers)} streams")
        if stats["open_stores"] != len(ledger.grants):
            raise self.broken(f"{stats['open_stores']} stores, {len(ledger.grants)} tickets")
        least = len(ledger.loans) + len(ledger.pending)
        if stats["open_loads"] < least:
            raise self.broken(f"{stats['open_loads']} loads, {least} tickets and waits")
