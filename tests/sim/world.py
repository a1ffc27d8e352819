"""A whole small world from one seed: agents one after the other, clients, a disk, and time.

A step is one event given to the engine. Everything random comes from one generator, everything
that happens goes through one agenda, and nothing looks at a set's order or at an object's address,
so a seed is a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from tests.sim.agenda import Agenda, Deed
from tests.sim.broken import Broken
from tests.sim.checkers.all import all_checkers
from tests.sim.clients import Client, Session
from tests.sim.config import config_of
from tests.sim.disk import Disk
from tests.sim.life import Leftover, Life
from tests.sim.ops import OBEDIENT
from tests.sim.pages import FLEETS, pattern, prompts
from tests.sim.rogues import ROGUE, Rogue
from tests.sim.table import Table
from tests.sim.trace import Trace

from onggi_core.engine.actions import Action
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import BudgetSet, Event, ModeSet, Tick
from onggi_core.engine.state import Facts
from onggi_core.wire.replies import Mode
from onggi_core.wire.requests import SpaceSpec

TICK_S: Final = 0.25
WALK_EVERY: Final = 128
"""Steps between two walks through everything that there is."""
REST_STEPS_MAX: Final = 4000
"""Steps that a world at rest may still take: each page of the largest world read and written, and
a few minutes of ticks."""
REST_S: Final = 40.0
"""An extent that was refused is asked for again after ten seconds, and then one by one."""
STOP_S: Final = 10.0
"""An agent that was told to stop and has not drained by then is killed."""


class Steppable(Protocol):
    """The engine, or one that a test broke on purpose."""

    @property
    def busy(self) -> bool: ...

    def step(self, event: Event, now_s: float) -> list[Action]: ...


class World:
    def __init__(
        self, seed: int, config: str, engine_of: Callable[[Facts], Steppable] = Engine
    ) -> None:
        self.rng = Random(f"{config}/{seed}")
        self.config = config_of(config, self.rng)
        self.engine_of = engine_of
        self.steps = 0
        self.resting = False
        self.trace = Trace()
        self.happened: Counter[str] = Counter()
        self.agenda = Agenda(self.rng)
        self.prompts = prompts(self.rng)
        self.disk = Disk(self.rng, self.config.segment_slots, self.config.faults)
        self.table = Table(self.rng, self.disk.segment_bytes)
        self.checkers = all_checkers(self)
        self._generation = 0
        self._lives = 0
        self._leftover: Leftover = {}
        self._new_life()
        self.clients = [
            *(Client(self, number, OBEDIENT) for number in range(self.config.clients)),
            *(Rogue(self, 100 + number, ROGUE) for number in range(self.config.rogues)),
        ]
        self.agenda.after(0.0, self._tick)
        self._plan_fate()

    # ---- running

    def run(self, steps: int) -> None:
        """Lets `steps` events happen, then brings everything to rest. Raises Broken."""
        while self.steps < steps:
            self.agenda.next()()
        self.rest()

    def rest(self) -> None:
        """All clients die, the disk is well again: what is left over then is a leak."""
        self.resting = True
        for client in self.clients:
            client.die()
        self.disk.heal()
        while self.life.over:
            self.agenda.next()()
        if self.life.stopping:
            self._end_life(power=False)
            self._new_life()
        life = self.life
        self.agenda.after(0.2, lambda: life.step(ModeSet(Mode.ACTIVE)))
        budget = BudgetSet(life.facts.extents, life.facts.segments)
        self.agenda.after(0.3, lambda: self.set_budget(budget))
        self.agenda.after(TICK_S, self._tick)  # a drought may have begun
        until_s, until = self.agenda.now_s + REST_S, self.steps + REST_STEPS_MAX
        while self.agenda.now_s < until_s or life.driver.jobs or life.driver.touching:
            self.agenda.next()()
            if self.steps > until:
                raise Broken("liveness", f"{len(life.driver.jobs)} jobs are left at rest, no end")
        for checker in self.checkers:
            checker.walk()
        for checker in self.checkers:
            checker.rest()
        self.life.tell()

    # ---- what the rest of the world tells

    def before(self, event: Event) -> None:
        for checker in self.checkers:
            checker.before(event)

    def count(self, event: Event, actions: list[Action]) -> None:
        self.steps += 1
        self.trace.note(self.steps, self.agenda.now_s, event, actions)

    def after(self, event: Event, actions: list[Action]) -> None:
        for checker in self.checkers:
            checker.after(event, actions)
        if self.steps % WALK_EVERY == 0:
            for checker in self.checkers:
                checker.walk()

    def filled(self, session: Session, offset: int, content: bytes) -> None:
        """A client wrote a page that it was given."""
        for checker in self.checkers:
            checker.filled(session, offset, content)

    def believed(self, session: Session, space: SpaceSpec, key: bytes, content: bytes) -> None:
        """A client copied a page out, and every rule says that it holds this block."""
        self.happened["page copied out"] += 1
        for checker in self.checkers:
            checker.believed(session, space, key, content)

    def wrote(self, space: SpaceSpec, key: bytes, content: bytes) -> None:
        """The disk tier took these bytes for this block."""
        for checker in self.checkers:
            checker.wrote(space, key, content)

    # ---- what clients take from the world

    def some_spaces(self) -> tuple[SpaceSpec, ...]:
        """A scheduler names all ranks, a worker its own."""
        fleet = self.rng.choice(FLEETS)
        return fleet if self.rng.random() < 0.5 else (self.rng.choice(fleet),)

    def fresh(self, space: SpaceSpec, key: bytes) -> bytes:
        """Bytes for a block that nobody wrote before."""
        self._generation += 1
        return pattern(space, key, self._generation)

    def bury(self, client: Client) -> None:
        self.happened["client died"] += 1
        client.die()
        self.agenda.after(self.rng.uniform(0.0, 2.0), client.come_back)

    def set_budget(self, budget: BudgetSet) -> None:
        self.life.budget = budget
        self.life.step(budget)

    # ---- fate

    def _plan_fate(self) -> None:
        config, faults = self.config, self.config.faults
        self._now_and_then(config.kill_every_s, self._kill)
        self._now_and_then(config.stop_every_s, self._stop)
        self._now_and_then(config.mode_every_s, self._change_mode)
        self._now_and_then(config.budget_every_s, self._change_budget)
        self._now_and_then(config.jump_every_s, self._jump)
        self._now_and_then(faults.flip_every_s, self.disk.flip)
        self._now_and_then(faults.swap_every_s, self.disk.swap)
        self._now_and_then(faults.full_every_s, lambda: self._for_a_while("full"))
        self._now_and_then(faults.slow_every_s, lambda: self._for_a_while("slow"))
        self._now_and_then(faults.hang_every_s, lambda: self._for_a_while("hung"))

    def _now_and_then(self, mean_s: float, deed: Deed) -> None:
        if not mean_s:
            return

        def again() -> None:
            if self.resting:
                return
            if not self.life.over:
                deed()
            self.agenda.after(self.rng.expovariate(1 / mean_s), again)

        self.agenda.after(self.rng.expovariate(1 / mean_s), again)

    def _tick(self) -> None:
        if not self.life.over:
            self.life.step(Tick())
        drought = self.config.drought_every_s
        if drought and not self.resting and self.rng.random() < TICK_S / drought:
            self.happened["drought of ticks"] += 1
            self.agenda.after(self.rng.uniform(1.0, 60.0), self._tick)
        else:
            self.agenda.after(TICK_S, self._tick)

    def _for_a_while(self, what: str) -> None:
        self.happened[f"disk {what}"] += 1
        setattr(self.disk, what, True)
        well = self.rng.uniform(0.5, 20.0)
        self.agenda.after(well, lambda: setattr(self.disk, what, False))

    def _jump(self) -> None:
        self.happened["clock jumped"] += 1
        self.agenda.jump(self.rng.uniform(1.0, 100.0))

    def _change_mode(self) -> None:
        self.life.step(ModeSet(self.rng.choice((Mode.ACTIVE, Mode.ACTIVE, *Mode))))

    def _change_budget(self) -> None:
        facts, rng = self.life.facts, self.rng
        self.happened["budget set"] += 1
        extents = rng.choice((facts.extents, rng.randint(0, facts.extents)))
        segments = rng.choice((facts.segments, rng.randint(0, facts.segments)))
        self.set_budget(BudgetSet(extents, segments))

    # ---- lives

    def _new_life(self) -> None:
        self._lives += 1
        self.life = Life(self, self._lives, self._leftover)
        self._leftover = {}
        for checker in self.checkers:
            checker.begin(self.life)
        self.life.begin()

    def _kill(self) -> None:
        if self.life.stopping:
            return
        power = self.rng.random() < self.config.power_cut
        self.happened["power lost" if power else "agent killed"] += 1
        self._end_life(power=power)
        self.agenda.after(self.rng.uniform(0.0, 3.0), self._new_life)

    def _end_life(self, *, power: bool) -> None:
        damage = 0.02 if power else 0.005
        self._leftover = {} if power or self.life.stopping else self.life.leave_behind()
        self.life.die()
        if power:
            self.disk.lose_power()
        self.table.lose(power=power, damage=damage if self.config.faults.eio else 0.0)

    def _stop(self) -> None:
        if self.life.stopping:
            return
        self.happened["agent stopped"] += 1
        life, deadline_s = self.life, self.agenda.now_s + STOP_S
        life.stop()

        def drained() -> None:
            if life.over:
                return
            if life.driver.jobs and self.agenda.now_s < deadline_s:
                self.agenda.after(0.1, drained)
                return
            self.table.flush()
            life.die()
            if not self.resting:
                self.agenda.after(self.rng.uniform(0.0, 2.0), self._new_life)

        self.agenda.after(0.1, drained)
