"""bytes: no wrong byte is ever handed to a client that keeps the rules, nor written down.

A page's right bytes are what lay in it when its store was completed as sealed, whoever wrote them:
of that store or of an earlier one of the same block. What a client that keeps the rules seals is
what it wrote: nobody else wrote there meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checkers.base import Checker
from tests.sim.ledger import Grant, Loan
from tests.sim.trace import shown

from onggi_core.engine.actions import Action
from onggi_core.engine.events import Event
from onggi_core.wire.requests import SpaceSpec

if TYPE_CHECKING:
    from tests.sim.clients import Session
    from tests.sim.life import Life
    from tests.sim.world import World


class Bytes(Checker):
    name = "bytes"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._right: dict[tuple[bytes, bytes], set[bytes]] = {}

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._filled: dict[tuple[int, int], bytes] = {}
        """(session, offset) -> what the client wrote there last."""

    def after(self, event: Event, actions: list[Action]) -> None:
        change, arena = self.life.change, self.life.arena
        if change.sealed is not None:
            self._sealed(change.sealed)
        for held in change.opened:
            if isinstance(held, Loan):
                for space, key, offset in held.pages():
                    self._look(space, key, arena.read(offset, space.page_bytes), "a load offers")

    def _sealed(self, grant: Grant) -> None:
        space, obedient = grant.space, not self.life.peers[grant.session].suspect
        for key, offset in grant.pages:
            content = self.life.arena.read(offset, space.page_bytes)
            if obedient and content != self._filled.get((grant.session, offset)):
                raise self.broken(f"store {grant.ticket} holds at {offset} what it did not write")
            self._right.setdefault((space.fingerprint, key), set()).add(content)

    def filled(self, session: Session, offset: int, content: bytes) -> None:
        if session.life is self.life:
            self._filled[session.number, offset] = content

    def believed(self, session: Session, space: SpaceSpec, key: bytes, content: bytes) -> None:
        self._look(space, key, content, f"client {session.client.number} copied")

    def wrote(self, space: SpaceSpec, key: bytes, content: bytes) -> None:
        self._look(space, key, content, "the disk was given")

    def _look(self, space: SpaceSpec, key: bytes, content: bytes, who: str) -> None:
        if content not in self._right.get((space.fingerprint, key), ()):
            raise self.broken(f"{who} wrong bytes as block {shown(key)} of {shown(space)}")
