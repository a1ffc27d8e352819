"""promises: what a lookup calls ready, a load in the same moment gets.

Asked of chains, in which no block comes twice; a load is cut where one does.
"""

from __future__ import annotations

from tests.sim.checkers.base import Checker

from onggi_core.engine.actions import Action, Answer
from onggi_core.engine.events import Asked, Event
from onggi_core.wire.frame import OFFSETS_MAX
from onggi_core.wire.replies import LoadPrepared, Looked
from onggi_core.wire.requests import LoadPrepare, Lookup


class Promises(Checker):
    name = "promises"
    _promised: tuple[int, float, tuple[bytes, ...], int] | None = None

    def after(self, event: Event, actions: list[Action]) -> None:
        promised, self._promised = self._promised, None
        if not isinstance(event, Asked) or not actions or not isinstance(actions[0], Answer):
            return
        request, reply, now_s = event.request, actions[0].reply, self.world.agenda.now_s
        if isinstance(request, Lookup) and isinstance(reply, Looked):
            if len(set(request.keys)) == len(request.keys):
                self._promised = event.session, now_s, request.keys, reply.ready
        elif isinstance(request, LoadPrepare) and isinstance(reply, LoadPrepared) and promised:
            session, then_s, keys, ready = promised
            if (session, then_s, keys) == (event.session, now_s, request.keys):
                self.world.happened["promise tried"] += 1
                ranks = len(self.life.ledger.sessions[session])
                if reply.blocks < min(ready, OFFSETS_MAX // ranks):
                    raise self.broken(f"{ready} blocks were ready, a load got {reply.blocks}")
