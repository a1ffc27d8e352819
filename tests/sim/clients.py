"""Clients as little programs: what one does is a generator that yields what it waits for.

A client keeps the rules of docs/protocol.md: it writes only to pages it was given, believes what
it copied only within its lease and while the arena's epoch stands, closes its stream only when no
copy runs, and touches nothing once it is dead. It may die at any yield.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onggi_core.engine.actions import Refuse
from onggi_core.engine.state import LEASE_S
from onggi_core.wire.replies import LoadPrepared, Reply, StoreFilled, StorePrepared, Welcome
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    Request,
    SpaceSpec,
    StoreComplete,
    StoreOutcome,
)

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.world import World

TASKS_MAX: Final = 3
"""What one client does at once."""
PATIENCE_S: Final = 35.0
"""Longer than any wait for disk: past it a client gives a request up."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and wait for its answer: a reply, a refusal, or None when it was given up."""

    request: Request
    patience_s: float = PATIENCE_S
    at_once: bool = False
    """In this very moment, with nothing in between."""


Wait = Pause | Call
Answered = Reply | Refuse | None
Task = Generator[Wait, Answered, None]


class SessionGone(Exception):
    """The stream ended under a task."""


class Session:
    """One attachment to one life. Tasks hold on to it, however the client goes on."""

    def __init__(self, client: Client, life: Life, specs: tuple[SpaceSpec, ...]) -> None:
        self.client = client
        self.life = life
        self.specs = specs
        self.number = client.open_stream(life)
        self.tags: tuple[int, ...] = ()
        """Its spaces' numbers on the board, once it was greeted."""
        self.open = True

    @property
    def alive(self) -> bool:
        return self.open and not self.life.over

    @property
    def lease_s(self) -> float:
        return LEASE_S


class Client:
    """An obedient one. `ops` names what it does, with weights."""

    suspect = False
    """Whether its requests may be refused: refusals are then checked to change nothing."""

    def __init__(self, world: World, number: int, ops: dict[Callable[[Session], Task], int]):
        self.world = world
        self.number = number
        self.session: Session | None = None
        self._ops = list(ops)
        self._weights = list(ops.values())
        self._tasks: dict[int, tuple[Task, Session | None]] = {}
        self._calls: dict[tuple[int, int], int] = {}
        """(life, request) -> the task that waits for it."""
        self._given_up: set[tuple[int, int]] = set()
        self._streams: dict[tuple[int, int], Life] = {}
        self._serial = 0
        self.spawn(self._live(), None)

    # ---- the program

    def _live(self) -> Task:
        world, rng = self.world, self.world.rng
        while True:
            yield Pause(self.pause_s())
            session = self.session
            if session is None or not session.alive:
                if world.life.over or world.life.stopping:
                    continue
                yield from self._attach()
            elif rng.random() < 0.01 and not self.at_work:
                self.close(session)
            elif self.at_work < TASKS_MAX:
                (op,) = rng.choices(self._ops, self._weights)
                self.spawn(op(session), session)

    def _attach(self) -> Task:
        session = Session(self, self.world.life, self.world.some_spaces())
        self.session = session
        self._tasks[0] = (self._tasks[0][0], session)
        welcome = yield Call(Hello(self.number, "sim", session.specs))
        if isinstance(welcome, Welcome):
            session.tags = welcome.tags
        else:
            self.close(session)

    def open_stream(self, life: Life) -> int:
        number = life.open(self)
        self._streams[life.number, number] = life
        return number

    def close_stream(self, life: Life, number: int) -> None:
        """A stream ends on its own; the agent hears of it a moment later."""
        if self._streams.pop((life.number, number), None) is not None:
            self.world.agenda.after(self.world.rng.uniform(0, 0.1), lambda: life.close(number))

    def close(self, session: Session) -> None:
        session.open = False
        self.close_stream(session.life, session.number)
        if self.session is session:
            self.session = None

    def die(self) -> None:
        """A killed process: it does nothing more, and its streams end."""
        for task, _ in self._tasks.values():
            task.close()
        self._tasks.clear()
        self._calls.clear()
        self._given_up.clear()
        if self.session is not None:
            self.close(self.session)
        for (_, number), life in tuple(self._streams.items()):
            self.close_stream(life, number)

    def come_back(self) -> None:
        """Another process in its place."""
        if not self.world.resting:
            self.spawn(self._live(), None)

    # ---- tasks

    @property
    def at_work(self) -> int:
        return len(self._tasks) - 1

    def spawn(self, task: Task, session: Session | None) -> None:
        number = self._serial if self._tasks else 0
        self._serial = max(self._serial, number) + 1
        self._tasks[number] = (task, session)
        self.world.agenda.after(0.0, lambda: self._resume(number, task, None))

    def _resume(self, number: int, task: Task, value: Answered, *, gone: bool = False) -> None:
        """Runs a task to its next wait. It may have died since this was planned."""
        if self._tasks.get(number, (None,))[0] is not task:
            return
        if self.world.rng.random() < self.world.config.deadly and not self.world.resting:
            self.world.bury(self)
            return
        try:
            wait = task.throw(SessionGone()) if gone else task.send(value)
        except (StopIteration, SessionGone):
            if number == 0:
                self._tasks[0] = (self._live(), None)
                self.world.agenda.after(0.1, lambda: self._resume(0, self._tasks[0][0], None))
            else:
                self._tasks.pop(number, None)
            return
        if isinstance(wait, Pause):
            self.world.agenda.after(wait.seconds, lambda: self._resume(number, task, None))
        else:
            self._call(number, task, wait)

    def _call(self, number: int, task: Task, call: Call) -> None:
        session = self._tasks[number][1]
        if session is None or not session.alive:
            self.world.agenda.after(0.01, lambda: self._resume(number, task, None, gone=True))
            return
        life = session.life
        request = life.number, life.next_request()
        self._calls[request] = number
        ask = life.ask_now if call.at_once else life.ask
        ask(session.number, call.request, request[1])

        def lose_patience() -> None:
            if self._calls.pop(request, None) is not None and number in self._tasks:
                self._given_up.add(request)
                self._resume(number, task, None, gone=not session.alive)

        self.world.agenda.after(call.patience_s, lose_patience)

    def hear(self, life: Life, request_id: int, reply: Reply | Refuse) -> None:
        """An answer was sent; it arrives a moment later."""
        request = life.number, request_id
        number = self._calls.pop(request, None)
        transit_s = self.world.rng.uniform(0.0, 0.01)
        if number is not None:
            task = self._tasks[number][0]
            self.world.agenda.after(transit_s, lambda: self._resume(number, task, reply))
        elif request in self._given_up:
            self._given_up.discard(request)
            self.give_back(life, reply)

    def give_back(self, life: Life, reply: Reply | Refuse) -> None:
        """A reply that nobody waits for any more brought a ticket: complete it."""
        session = self.session
        if session is None or session.life is not life or not session.alive:
            return
        if isinstance(reply, LoadPrepared) and reply.ticket:
            done: Request = LoadComplete(reply.ticket, LoadOutcome.UNUSED, 0)
        elif isinstance(reply, StorePrepared | StoreFilled) and reply.ticket:
            done = StoreComplete(reply.ticket, StoreOutcome.ABANDONED)
        else:
            return
        life.ask(session.number, done)

    def pause_s(self) -> float:
        return float(10 ** self.world.rng.uniform(-3.0, 0.3))
