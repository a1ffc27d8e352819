"""One life of the agent: an engine, an arena, the peers that talk to it, from start to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.sim import look
from tests.sim.arena import Arena
from tests.sim.config import SLOT
from tests.sim.driver import Driver
from tests.sim.ledger import Change, Ledger

from onggi_core.arena_header import DATA_OFFSET_BYTES
from onggi_core.board.survey import Held
from onggi_core.engine.actions import Action, Answer, Refuse
from onggi_core.engine.events import (
    Asked,
    BudgetSet,
    Event,
    GoOn,
    Idle,
    SessionClosed,
    SessionOpened,
    Stopping,
)
from onggi_core.engine.state import Facts, RoomBounds
from onggi_core.wire.requests import Request

if TYPE_CHECKING:
    from tests.sim.clients import Client
    from tests.sim.world import World

ROOMS: Final = RoomBounds(session_bytes=16 * SLOT, share=4, worth_bytes=SLOT)
"""Of arenas of a few pages."""
IDLE_AFTER_S: Final = 0.001
"""When all that is due at one moment is done, the plane is idle."""
Leftover = dict[int, tuple[Sequence[Held], bytes]]
"""By extent: the blocks that its board shows there, and its bytes."""

NONE_YET: Final = Change([], [], None, [])


class Life:
    """over: the process is gone; nothing of it happens any more."""

    def __init__(self, world: World, number: int, leftover: Leftover) -> None:
        config = world.config
        self.world = world
        self.number = number
        self.over = False
        self.stopping = False
        extent_bytes = config.extent_slots * SLOT
        self.facts = Facts(
            epoch=number.to_bytes(16, "big"),
            arena="arena",
            arena_bytes=DATA_OFFSET_BYTES + extent_bytes * config.extents,
            data_offset=DATA_OFFSET_BYTES,
            extent_bytes=extent_bytes,
            extents=config.extents,
            segment_bytes=config.segment_slots * SLOT,
            segments=config.segments,
            rooms=ROOMS,
        )
        self.budget = BudgetSet(config.extents, config.segments)
        self.arena = Arena(config.extents, extent_bytes)
        self.engine = world.engine_of(self.facts)
        self.ledger = Ledger()
        self.driver = Driver(self)
        self.peers: dict[int, Client] = {}
        self.change = NONE_YET
        self._goes_on = False
        self._idles = False
        self._leftover = leftover
        self._session = 0
        self._request = 0

    def inherit(self, extent: int) -> Sequence[Held]:
        """What a killed agent left in an extent moves in; told once."""
        held, content = self._leftover.pop(extent, ((), b""))
        self.arena.move_in(extent, content)
        self.world.happened["block inherited"] += sum(len(part.keys) for part in held)
        return held

    def leave_behind(self) -> Leftover:
        """What is in its memory when only the agent is killed."""
        found = look.survey_of(self.engine, self.facts)
        return {extent: (held, self.arena.extent(extent)) for extent, held in found.items()}

    def begin(self) -> None:
        """As the agent starts: what the disk tier says, then the extents one after the other."""
        adopted = self.world.table.survivors(self.world.disk, self.facts.segments)
        for event in adopted:
            self.world.happened["block adopted"] += len(event.keys)
            self.step(event)
        rng, facts = self.world.rng, self.facts
        if self.world.config.budget_every_s and rng.random() < 0.5:
            self.budget = BudgetSet(rng.randint(1, facts.extents), rng.randint(0, facts.segments))
        self.step(self.budget)
        for number in range(self.budget.extents):
            self.driver.touch(number)

    def step(self, event: Event) -> list[Action]:
        """One event to the engine, what it answers checked and then done."""
        world = self.world
        world.before(event)
        closed = self.ledger.take_event(event, world.agenda.now_s)
        actions = self.engine.step(event, world.agenda.now_s)
        world.count(event, actions)
        self.change = self.ledger.take_actions(actions, world.agenda.now_s, closed)
        world.after(event, actions)
        for action in actions:
            self._do(action)
        if self.engine.busy and not self._goes_on:
            self._goes_on = True
            world.agenda.after(0.0, self._go_on)
        if self.engine.curious and not self._idles:
            self._idles = True
            world.agenda.after(IDLE_AFTER_S, self._idle)
        return actions

    def _go_on(self) -> None:
        """When everybody else had a turn."""
        self._goes_on = False
        if not self.over:
            self.step(GoOn())

    def _idle(self) -> None:
        self._idles = False
        if not self.over:
            self.step(Idle())

    def open(self, client: Client) -> int:
        self._session += 1
        self.peers[self._session] = client
        self.step(SessionOpened(self._session))
        return self._session

    def close(self, session: int) -> None:
        if not self.over and self.peers.pop(session, None) is not None:
            self.step(SessionClosed(session))

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def ask(self, session: int, request: Request, number: int = 0) -> None:
        """A request on its way: others may come before it."""
        number = number or self.next_request()
        self.world.agenda.after(0.0, lambda: self.ask_now(session, request, number))

    def ask_now(self, session: int, request: Request, number: int = 0) -> None:
        """In this very moment, with nothing in between."""
        if not self.over and session in self.peers:
            self.step(Asked(session, number or self.next_request(), request))

    def stop(self) -> None:
        self.stopping = True
        self.step(Stopping())

    def tell(self) -> None:
        """Adds what this life's engine counted to what happened in the world."""
        figures, happened = look.stats(self.engine), self.world.happened
        happened["read from disk"] += figures["hit_disk_blocks"]
        happened["evicted from the arena"] += figures["evicted_host_blocks"]
        happened["evicted from the disk"] += figures["evicted_disk_blocks"]
        happened["turned away from the arena"] += figures["unadmitted_host_blocks"]
        happened["turned away from the disk"] += figures["unadmitted_disk_blocks"]
        happened.update(figures["errors"])

    def die(self) -> None:
        """The process is gone. Clients find out when they next ask or read."""
        self.tell()
        self.driver.die()
        self.over = True
        self.arena.retire()

    def _do(self, action: Action) -> None:
        if not isinstance(action, (Answer, Refuse)):
            self.driver.do(action)
            return
        client = self.peers.get(action.session)
        if client is not None:
            reply = action.reply if isinstance(action, Answer) else action
            client.hear(self, action.request_id, reply)
