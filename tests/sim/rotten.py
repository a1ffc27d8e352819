"""More engines with one bug each: about what is given up, and when. See tests/sim/saboteurs.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.saboteurs import Saboteur

from onggi_core.engine.actions import Action, Answer
from onggi_core.engine.dead import Dead
from onggi_core.engine.events import Adopted, Asked, Event, SessionClosed
from onggi_core.engine.state import Facts
from onggi_core.page import PageState
from onggi_core.wire.replies import LoadCompleted
from onggi_core.wire.requests import Discard, LoadComplete, LoadOutcome, StoreFill, StorePrepare


class MakesRoomOfWhatItFound(Saboteur):
    """Of blocks that a store names and that are here, only what the last one stands on is kept
    while room is made for the others."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        ranking = self._state.host.ranking
        ranking.touch_run = lambda blocks, use: ranking.touch(blocks[-1], use)


class DiscardsWhatIsRead(Saboteur):
    """A discarded block goes though a load has it pinned. Its figures look well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._gone: dict[int, int] = {}

    def stats(self) -> dict[str, Any]:
        figures = super().stats()
        return {**figures, "open_loads": figures["open_loads"] + len(self._gone)}

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, LoadComplete) and self._gone.get(asked.ticket) == event.session:
            del self._gone[asked.ticket]
            return [Answer(event.session, event.request_id, asked.op, LoadCompleted())]
        if isinstance(event, SessionClosed):
            self._gone = {t: s for t, s in self._gone.items() if s != event.session}
        actions = super().step(event, now_s)
        if isinstance(asked, Discard):
            self._give_away(now_s)
        return actions

    def _give_away(self, now_s: float) -> None:
        state = self._state
        for load in [load for load in state.loads.values() if load not in state.waiting_loads]:
            if any(state.host.dead.blocks.intersection(run) for run in load.runs):
                self._gone[load.ticket] = load.session
                done = LoadComplete(load.ticket, LoadOutcome.UNUSED, 0)
                self.quietly(Asked(load.session, 0, done), now_s)


class DiscardsWhatIsStoredAgain(Saboteur):
    """What was discarded and has not gone goes, whoever stores it meanwhile."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        host = self._state.host
        dead = sorted(host.dead.blocks) if isinstance(asked, StorePrepare | StoreFill) else []
        actions = super().step(event, now_s)
        host.dead.add(dead, host.pages.states)
        return actions


class CountsBeginningsForItself(Saboteur):
    """Which prompts are known is counted where no client looks. The agent's own books look well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        beginnings = self._state.blocks.beginnings
        beginnings._counts = memoryview(bytearray(len(beginnings._counts)))


class AdoptsWithoutBeginnings(Saboteur):
    """What was on disk before this life is known, and denied on the board."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        actions = super().step(event, now_s)
        if isinstance(event, Adopted):
            index = self._state.blocks
            index.beginnings.remove(range(len(index.space)), index.keys)
        return actions


class KeepsTheDead(Saboteur):
    """A discarded page that somebody reads or writes is forgotten about when that ends."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._state.host.dead = _Deaf()


class _Deaf(Dead):
    __slots__ = ()

    def add(self, blocks: Sequence[int], states: bytearray) -> None:
        super().add(blocks, states)
        self.going.update(
            dict.fromkeys(block for block in blocks if states[block] == PageState.SEALED)
        )

    def may_go(self, blocks: Sequence[int], states: bytearray) -> None:
        """Nobody hears that a reader is done."""
