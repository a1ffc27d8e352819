"""Engines with one bug each: what the checkers must find.

Each wraps the real engine and bends what goes in or comes out, so that it holds whatever the
engine looks like inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.ops import REFUSED

from onggi_core.engine.actions import (
    Action,
    Answer,
    ForgetPage,
    Refuse,
    ReleaseExtent,
    TouchExtent,
    WriteRun,
)
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Asked, Event, ModeSet, SessionClosed, Tick, WriteEnded
from onggi_core.engine.session import Room
from onggi_core.engine.state import LEASE_S, Facts
from onggi_core.wire.replies import (
    LoadCompleted,
    LoadPrepared,
    Mode,
    StoreCompleted,
    StoreFilled,
    StorePrepared,
)
from onggi_core.wire.requests import (
    LoadComplete,
    LoadOutcome,
    LoadPrepare,
    StoreComplete,
    StoreFill,
    StoreOutcome,
)


class Saboteur:
    """The real engine, until a subclass says otherwise."""

    def __init__(self, facts: Facts) -> None:
        self.real = Engine(facts)
        self.facts = facts

    @property
    def _state(self) -> Any:
        return self.real._state

    @property
    def busy(self) -> bool:
        return self.real.busy

    @property
    def curious(self) -> bool:
        return self.real.curious

    def stats(self) -> dict[str, Any]:
        return self.real.stats()

    def step(self, event: Event, now_s: float) -> list[Action]:
        return list(self.real.step(event, now_s))

    def quietly(self, event: Event, now_s: float) -> None:
        """A step that nobody hears of."""
        self.real.step(event, now_s)


class WrongOffset(Saboteur):
    """A load is told two blocks the wrong way round."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        return [self._bent(action) for action in super().step(event, now_s)]

    def _bent(self, action: Action) -> Action:
        if isinstance(action, Answer) and isinstance(action.reply, LoadPrepared):
            rows = tuple((*row[1:2], *row[:1], *row[2:]) for row in action.reply.offsets)
            return replace(action, reply=replace(action.reply, offsets=rows))
        return action


class NoPin(Saboteur):
    """Pages of a load are not pinned: it is completed behind the client's back. Its figures look
    well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._done: set[int] = set()

    def stats(self) -> dict[str, Any]:
        figures = super().stats()
        return {**figures, "open_loads": figures["open_loads"] + len(self._done)}

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, LoadComplete) and asked.ticket in self._done:
            return [Answer(event.session, event.request_id, asked.op, LoadCompleted())]
        actions = super().step(event, now_s)
        for action in actions:
            if isinstance(action, Answer) and isinstance(action.reply, LoadPrepared):
                ticket = action.reply.ticket
                if ticket:
                    self._done.add(ticket)
                    done = LoadComplete(ticket, LoadOutcome.UNUSED, 0)
                    self.quietly(Asked(action.session, 0, done), now_s)
        return actions


class NoQuarantine(Saboteur):
    """A store whose lease ran out gives its pages away while its client may still write. Its
    figures look well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._open: dict[int, tuple[int, float]] = {}
        self._gone: dict[int, int] = {}

    def stats(self) -> dict[str, Any]:
        figures = super().stats()
        return {**figures, "open_stores": figures["open_stores"] + len(self._gone)}

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, StoreComplete):
            if self._gone.get(asked.ticket) == event.session:
                del self._gone[asked.ticket]
                return [Answer(event.session, event.request_id, asked.op, StoreCompleted(0))]
            self._open.pop(asked.ticket, None)
        elif isinstance(event, SessionClosed):
            for of in (self._open, self._gone):
                for ticket in [t for t in of if self._session_of(t) == event.session]:
                    del of[ticket]
        actions = super().step(event, now_s)
        for action in actions:
            if isinstance(action, Answer) and isinstance(action.reply, StorePrepared):
                self._open[action.reply.ticket] = (action.session, now_s)
        if isinstance(event, Tick):
            self._give_away(now_s)
        return actions

    def _session_of(self, ticket: int) -> int:
        return self._gone[ticket] if ticket in self._gone else self._open[ticket][0]

    def _give_away(self, now_s: float) -> None:
        for ticket, (session, then_s) in tuple(self._open.items()):
            if ticket and now_s - then_s > LEASE_S:
                del self._open[ticket]
                self._gone[ticket] = session
                done = StoreComplete(ticket, StoreOutcome.ABANDONED)
                self.quietly(Asked(session, 0, done), now_s)


class TwoOwners(Saboteur):
    """A page of one store is given to the next store too."""

    _last = 0

    def step(self, event: Event, now_s: float) -> list[Action]:
        if isinstance(event, Asked) and isinstance(event.request, StoreComplete):
            self._last = 0  # it may be that store's
        return [self._bent(action) for action in super().step(event, now_s)]

    def _bent(self, action: Action) -> Action:
        if not isinstance(action, Answer) or not isinstance(action.reply, StorePrepared):
            return action
        given = [slot for slot in action.reply.slots if slot not in REFUSED]
        bent = self._last
        self._last = given[-1] if given else 0
        if not given or not bent:
            return action
        slots = tuple(bent if slot == given[0] else slot for slot in action.reply.slots)
        return replace(action, reply=replace(action.reply, slots=slots))


class RoomOfTwo(Saboteur):
    """The last page of a room is given to the next room too."""

    _last = 0

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, StoreComplete) or (isinstance(asked, StoreFill) and asked.ticket):
            self._last = 0  # it may be that room's
        return [self._bent(action) for action in super().step(event, now_s)]

    def _bent(self, action: Action) -> Action:
        if not isinstance(action, Answer) or not isinstance(action.reply, StoreFilled):
            return action
        offsets = action.reply.offsets
        bent, self._last = self._last, offsets[-1] if offsets else 0
        if not offsets or not bent:
            return action
        return replace(action, reply=replace(action.reply, offsets=(bent, *offsets[1:])))


class RoomTakenBack(Saboteur):
    """A room whose lease ran out is given to others while its client may still write. Its figures
    look well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._gone: dict[int, int] = {}

    def stats(self) -> dict[str, Any]:
        figures = super().stats()
        return {**figures, "open_stores": figures["open_stores"] + len(self._gone)}

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        ends = isinstance(asked, StoreFill | StoreComplete)
        if ends and self._gone.get(asked.ticket) == event.session:
            del self._gone[asked.ticket]
            late = isinstance(asked, StoreFill)
            reply = StoreFilled(0, 0, 0, ()) if late else StoreCompleted(0)
            return [Answer(event.session, event.request_id, asked.op, reply)]
        if isinstance(event, SessionClosed):
            self._gone = {t: s for t, s in self._gone.items() if s != event.session}
        if isinstance(event, Tick):
            rooms = [store for store in self._state.stores.values() if isinstance(store, Room)]
            for room in rooms:
                if room.deadline_s <= now_s:
                    self._gone[room.ticket] = room.session
                    done = StoreComplete(room.ticket, StoreOutcome.ABANDONED)
                    self.quietly(Asked(room.session, 0, done), now_s)
        return super().step(event, now_s)


class NamesBackwards(Saboteur):
    """The pages of a room get each other's names."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, StoreFill):
            event = replace(event, request=replace(asked, keys=asked.keys[::-1]))
        return super().step(event, now_s)


class RoomWithoutBound(Saboteur):
    def __init__(self, facts: Facts) -> None:
        super().__init__(replace(facts, rooms=replace(facts.rooms, share=1)))


class BeyondTheArena(Saboteur):
    def step(self, event: Event, now_s: float) -> list[Action]:
        return [self._bent(action) for action in super().step(event, now_s)]

    def _bent(self, action: Action) -> Action:
        if isinstance(action, Answer) and isinstance(action.reply, StorePrepared):
            far = self.facts.extents * self.facts.extent_bytes
            slots = tuple(s if s in REFUSED else s + far for s in action.reply.slots)
            return replace(action, reply=replace(action.reply, slots=slots))
        return action


class BeyondTheDisk(Saboteur):
    def step(self, event: Event, now_s: float) -> list[Action]:
        far = self.facts.segments * self.facts.segment_bytes
        return [
            replace(action, place=action.place + far) if isinstance(action, WriteRun) else action
            for action in super().step(event, now_s)
        ]


class ForgetsToForget(Saboteur):
    """The disk tier never hears that a block left it."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        return [a for a in super().step(event, now_s) if not isinstance(a, ForgetPage)]


class LosesAnAnswer(Saboteur):
    def step(self, event: Event, now_s: float) -> list[Action]:
        return [a for a in super().step(event, now_s) if not self._loses(a)]

    def _loses(self, action: Action) -> bool:
        return isinstance(action, Answer) and isinstance(action.reply, LoadPrepared)


class NeverShrinks(Saboteur):
    """Memory never goes back, nor is it asked for again."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        extents = ReleaseExtent | TouchExtent
        return [a for a in super().step(event, now_s) if not isinstance(a, extents)]


class AlwaysActive(Saboteur):
    """Nobody hears that the pool was paused."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        return super().step(ModeSet(Mode.ACTIVE) if isinstance(event, ModeSet) else event, now_s)


class ShortLoad(Saboteur):
    """A load that does not wait gets a block less than there is."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, LoadPrepare) and not asked.wait_ms:
            event = replace(event, request=replace(asked, keys=asked.keys[:-1]))
        return super().step(event, now_s)


class SealsTheAbandoned(Saboteur):
    def step(self, event: Event, now_s: float) -> list[Action]:
        asked = event.request if isinstance(event, Asked) else None
        if not isinstance(asked, StoreComplete) or asked.outcome is StoreOutcome.SEALED:
            return super().step(event, now_s)
        sealed = replace(event, request=replace(asked, outcome=StoreOutcome.SEALED))
        return [
            replace(action, reply=StoreCompleted(0))
            if isinstance(action, Answer) and isinstance(action.reply, StoreCompleted)
            else action
            for action in super().step(sealed, now_s)
        ]


class MissesTheEnd(Saboteur):
    """A session's end goes unheard."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        return [] if isinstance(event, SessionClosed) else super().step(event, now_s)


class RefusesAndObeys(Saboteur):
    """A ticket of somebody else is refused, and completed all the same."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        actions = super().step(event, now_s)
        asked = event.request if isinstance(event, Asked) else None
        if isinstance(asked, StoreComplete) and any(isinstance(a, Refuse) for a in actions):
            owner = self._state.stores.get(asked.ticket)
            if owner is not None:
                self.quietly(Asked(owner.session, 0, asked), now_s)
        return actions


class LosesAnEnd(Saboteur):
    """The end of one write in seven is lost, and its page stays pinned for ever."""

    def step(self, event: Event, now_s: float) -> list[Action]:
        if isinstance(event, WriteEnded) and event.job % 7 == 0:
            return []
        return super().step(event, now_s)


class StaysOnTheBoard(Saboteur):
    """The stamp of what leaves the arena is not cleared. The agent's own books look well."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        board = self._state.board
        clear, stamps = board.take_off, board._stamps

        def keep_stamps(blocks: Any) -> None:
            kept = bytes(stamps)
            clear(blocks)
            stamps.cast("B")[:] = kept

        board.take_off = keep_stamps


class Raises(Saboteur):
    def step(self, event: Event, now_s: float) -> list[Action]:
        if isinstance(event, WriteEnded):
            raise AssertionError("planted")
        return super().step(event, now_s)
