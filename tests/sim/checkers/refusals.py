"""refusals: a request that is refused changes nothing."""

from __future__ import annotations

from tests.sim import look
from tests.sim.checkers.base import Checker

from onggi_core.engine.actions import Action, Refuse
from onggi_core.engine.events import Asked, Event


class Refusals(Checker):
    name = "refusals"
    _before: object = None

    def before(self, event: Event) -> None:
        self._before = None
        if isinstance(event, Asked) and self.life.peers[event.session].suspect:
            self._before = look.digest(self.life.engine)

    def after(self, event: Event, actions: list[Action]) -> None:
        if self._before is None or not any(isinstance(action, Refuse) for action in actions):
            return
        self.world.happened["refusal"] += 1
        if len(actions) != 1:
            raise self.broken(f"{len(actions)} actions beside a refusal")
        after = look.digest(self.life.engine)
        if after != self._before:
            changed = look.difference(self._before, after)
            raise self.broken(f"{actions[0]} changed {changed}")
