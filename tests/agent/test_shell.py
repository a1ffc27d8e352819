"""The shell around an engine that has put work off: the rest comes when others had their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onggi_core.engine.actions import Action
from onggi_core.engine.events import Asked, Event, GoOn, Idle, Tick
from onggi_core.wire.requests import StatsRequest
from onggi_sidecar.shell import Shell


class Putting:
    """An engine that needs so many GoOns to be done, and so many Idles to have learned."""

    def __init__(self, parts: int, lessons: int = 0) -> None:
        self.parts = parts
        self.lessons = lessons
        self.events: list[type] = []

    @property
    def busy(self) -> bool:
        return self.parts > 0

    @property
    def curious(self) -> bool:
        return self.lessons > 0

    def step(self, event: Event, now_s: float) -> list[Action]:
        self.events.append(type(event))
        self.parts -= isinstance(event, GoOn)
        self.lessons -= isinstance(event, Idle)
        return []


def test_a_busy_engine_goes_on_a_part_a_turn_and_others_come_between() -> None:
    engine: Any = Putting(3)
    turns: list[Callable[[], None]] = []
    shell = Shell(engine, disk=None, toucher=None, clock=lambda: 0.0)  # type: ignore[arg-type]
    shell.again = turns.append
    shell.step(Tick())
    shell.ask(Asked(1, 1, StatsRequest()))
    assert len(turns) == 1  # one turn is asked for, however many steps found it busy
    while turns:
        turns.pop(0)()
        shell.ask(Asked(1, 2, StatsRequest()))
    assert engine.events == [Tick, Asked, GoOn, Asked, GoOn, Asked, GoOn, Asked]


def test_an_engine_at_rest_asks_for_no_turn() -> None:
    engine: Any = Putting(0)
    turns: list[Callable[[], None]] = []
    shell = Shell(engine, disk=None, toucher=None, clock=lambda: 0.0)  # type: ignore[arg-type]
    shell.again = turns.append
    shell.step(Tick())
    assert turns == []


def test_a_curious_engine_learns_a_part_whenever_nobody_wants_anything() -> None:
    engine: Any = Putting(1, lessons=2)
    turns: list[Callable[[], None]] = []
    idle: list[Callable[[], None]] = []
    shell = Shell(engine, disk=None, toucher=None, clock=lambda: 0.0)  # type: ignore[arg-type]
    shell.again, shell.when_idle = turns.append, idle.append
    shell.step(Tick())
    shell.step(Tick())
    assert (len(turns), len(idle)) == (1, 1)
    while idle:
        idle.pop(0)()
    assert engine.events == [Tick, Tick, Idle, Idle]
