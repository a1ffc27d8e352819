"""modes: a pool that is paused serves nothing; one that does not store, or ends, takes nothing."""

from __future__ import annotations

from tests.sim.checkers.base import Checker
from tests.sim.ledger import Grant
from tests.sim.life import Life

from onggi_core.engine.actions import Action, Answer
from onggi_core.engine.events import Event, ModeSet
from onggi_core.wire.replies import Looked, Mode


class Modes(Checker):
    name = "modes"

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._mode = Mode.ACTIVE

    def after(self, event: Event, actions: list[Action]) -> None:
        if isinstance(event, ModeSet):
            self._mode = event.mode
        stores = self._mode is Mode.ACTIVE and not self.life.stopping
        serves = self._mode is not Mode.PAUSED and not self.life.stopping
        for held in self.life.change.opened:
            if isinstance(held, Grant) and not stores:
                raise self.broken(f"a store got pages in mode {self._mode.name}")
        for action in actions:
            looked = action.reply if isinstance(action, Answer) else None
            if isinstance(looked, Looked) and looked.pending and not serves:
                raise self.broken(f"{looked} in mode {self._mode.name}")
