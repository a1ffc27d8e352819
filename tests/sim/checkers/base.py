"""What every checker may listen to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.broken import Broken

from onggi_core.engine.actions import Action
from onggi_core.engine.events import Event
from onggi_core.wire.requests import SpaceSpec

if TYPE_CHECKING:
    from tests.sim.clients import Session
    from tests.sim.life import Life
    from tests.sim.world import World


class Checker:
    """One invariant. It keeps books of its own and raises Broken under its name."""

    name = ""
    life: Life

    def __init__(self, world: World) -> None:
        self.world = world

    def begin(self, life: Life) -> None:
        """A new agent: nothing of the old one's is held by anybody."""
        self.life = life

    def before(self, event: Event) -> None:
        """The event is about to be given to the engine."""

    def after(self, event: Event, actions: list[Action]) -> None:
        """The engine answered with these actions; none is carried out yet. What they change
        between engine and clients is in `life.change`."""

    def walk(self) -> None:
        """Each few steps: look at everything."""

    def rest(self) -> None:
        """All clients are gone, every job has ended, the disk is well."""

    def filled(self, session: Session, offset: int, content: bytes) -> None:
        """A client wrote all of a page that it was given."""

    def believed(self, session: Session, space: SpaceSpec, key: bytes, content: bytes) -> None:
        """A client copied a page and by all rules may believe it."""

    def wrote(self, space: SpaceSpec, key: bytes, content: bytes) -> None:
        """The disk took these bytes as this block."""

    def broken(self, seen: str) -> Broken:
        return Broken(self.name, seen)
