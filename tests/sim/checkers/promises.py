"""promises: what an answer calls ready is there in that moment, and a load that comes then gets it.

What made room for a store or a hint is none of what its answer speaks of. What a store is told of
it has stored again: no DISCARD that came before may take it away.

Loads are asked of chains, in which no block comes twice; a load is cut where one does.

The board denies no prompt of which an answer finds something, unless somebody has stored its first
block as one that follows another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.trace import shown

from onggi_core.engine.actions import Action, Answer
from onggi_core.engine.events import Asked, Event
from onggi_core.identity import ROOT
from onggi_core.wire.frame import OFFSETS_MAX
from onggi_core.wire.replies import LoadPrepared, Looked, Slot, StorePrepared
from onggi_core.wire.requests import (
    LoadPrepare,
    Lookup,
    Prefetch,
    SpaceSpec,
    StoreFill,
    StorePrepare,
)

if TYPE_CHECKING:
    from tests.sim.world import World


class Promises(Checker):
    name = "promises"
    _promised: tuple[int, float, tuple[bytes, ...], int] | None = None

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._behind: set[bytes] = set()
        """Keys that were stored behind others, in this life or an earlier one."""

    def before(self, event: Event) -> None:
        request = event.request if isinstance(event, Asked) else None
        if isinstance(request, StorePrepare | StoreFill):
            chain = (request.parent, *request.keys)
            self._behind.update(key for above, key in pairwise(chain) if above != ROOT)

    def after(self, event: Event, actions: list[Action]) -> None:
        promised, self._promised = self._promised, None
        for pending, answer in self.life.change.answered or ():
            if isinstance(answer, Answer):
                self._answered(pending.asked, answer)
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

    def _answered(self, asked: Asked, answer: Answer) -> None:
        request, reply = asked.request, answer.reply
        spaces = self.life.ledger.sessions[answer.session]
        if isinstance(request, Lookup | Prefetch) and isinstance(reply, Looked):
            if reply.pending:
                self._may_begin(request.keys[0], shown(reply))
            for space in spaces:
                for key in request.keys[: reply.ready]:
                    self._must_be_there(space, key, ("gone",), shown(reply))
        elif isinstance(request, StorePrepare) and isinstance(reply, StorePrepared):
            for key, slot in zip(request.keys, reply.slots, strict=True):
                if slot == Slot.EXISTS:
                    self._must_be_there(spaces[request.space], key, ("gone", "dead"), shown(reply))

    def _may_begin(self, key: bytes, reply: str) -> None:
        if key not in self._behind and not look.board(self.life.engine).may_begin(key):
            raise self.broken(f"no chain begins with {shown(key)}, and the answer was {reply}")

    def _must_be_there(
        self, space: SpaceSpec, key: bytes, wrong: tuple[str, ...], reply: str
    ) -> None:
        if (why := look.there(self.life.engine, space, key)) in wrong:
            raise self.broken(
                f"{shown(key)} of {shown(space)} is {why}, and the answer was {reply}"
            )
