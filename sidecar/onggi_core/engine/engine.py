"""`Engine.step`: which event wakes what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onggi_core.board.layout import SLOTS_MIN, Layout
from onggi_core.board.writer import Board
from onggi_core.engine import (
    adoption,
    budgets,
    discarding,
    leaving,
    loads,
    lookup,
    promotion,
    sessions,
    stores,
    uses,
    watermark,
    writeback,
)
from onggi_core.engine.actions import Action, Answer, Refuse
from onggi_core.engine.events import (
    Adopted,
    Asked,
    BudgetSet,
    Event,
    ExtentRefused,
    ExtentTouched,
    GoOn,
    Idle,
    ModeSet,
    ReadEnded,
    SessionClosed,
    SessionOpened,
    Stopping,
    Tick,
    WriteEnded,
)
from onggi_core.engine.following import Following
from onggi_core.engine.session import TICKETS_MAX, Room, Session
from onggi_core.engine.state import Facts, State
from onggi_core.engine.stats import snapshot
from onggi_core.errors import BadRequest
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.wire.frame import Op, Status
from onggi_core.wire.locate import Locate, Located
from onggi_core.wire.replies import (
    Discarded,
    LoadCompleted,
    Mode,
    Noted,
    Reply,
    StatsReply,
    StoreFilled,
)
from onggi_core.wire.requests import (
    Discard,
    Hello,
    LoadComplete,
    Loaded,
    LoadPrepare,
    Lookup,
    Missed,
    Prefetch,
    StatsRequest,
    StoreComplete,
    StoreFill,
    StorePrepare,
)

REST_S: Final = 5.0
"""How long a disk segment that found no space is left alone before it is tried again."""


class Engine:
    """One agent's decisions. Not thread-safe: one loop steps it, and every step is quick."""

    def __init__(
        self,
        facts: Facts,
        mode: Mode = Mode.ACTIVE,
        board: Board | None = None,
        candidates: Sequence[PolicyName] = FIXED,
    ) -> None:
        """board: where clients see what the host tier holds; None: one that nobody sees.
        candidates: the policies that the tiers may follow, the first one to begin with."""
        if board is None:
            board = Board(bytearray(Layout(SLOTS_MIN).nbytes), SLOTS_MIN)
        if mode is not Mode.PAUSED:
            board.open()
        self._state = State(facts, mode, board)
        self._rested_s = 0.0
        self._following = Following(candidates)

    def step(self, event: Event, now_s: float) -> list[Action]:
        """What to do about `event`, in order. now_s: any clock that never goes back.

        Raises IllegalMove if the shell's events contradict each other (a job that ends twice).
        """
        state = self._state
        state.actions = []
        match event:
            case Asked():
                self._asked(event, now_s)
            case SessionOpened():
                state.sessions[event.session] = Session(event.session)
            case SessionClosed():
                sessions.gone(state, state.sessions[event.session], now_s)
            case WriteEnded():
                writeback.ended(state, event)
                self._keep(now_s)
            case ReadEnded():
                promotion.ended(state, event, now_s)
                self._keep(now_s)
            case ExtentTouched():
                budgets.touched(state, event)
                loads.room_came(state, now_s)
            case ExtentRefused():
                budgets.refused(state, event.number, now_s)
            case BudgetSet():
                budgets.set_budget(state, event, now_s)
            case Adopted():
                adoption.adopt(state, event)
            case ModeSet():
                state.mode = event.mode
                if event.mode is Mode.PAUSED or state.stopping:
                    state.board.close()
                else:
                    state.board.open()
            case Tick():
                self._tick(now_s)
            case GoOn():
                leaving.work(state, now_s)
                self._keep(now_s)
            case Idle():
                self._following.work(state)
            case Stopping():
                state.stopping = True
                state.board.close()
                for load in tuple(state.waiting_loads):
                    loads.time_over(state, load, now_s)
                uses.note(state)
        return state.actions

    @property
    def busy(self) -> bool:
        """Whether GoOn would find work that is ready to be done now."""
        state = self._state
        leaves = bool(state.leaving_stores or state.leaving_loads)
        leaves = leaves or bool(state.host.dead.going or state.disk.dead.going)
        return bool(leaves or state.above_high or state.shrinking)

    @property
    def curious(self) -> bool:
        """Whether Idle would find work: prompts to learn from. No request waits for that."""
        return self._following.waiting

    def stats(self) -> dict[str, Any]:
        """Figures of this moment: sizes and uses in bytes, counters since the start of this life.
        The same object STATS answers with, documented in docs/protocol.md."""
        return snapshot(self._state) | self._following.figures()

    def _asked(self, asked: Asked, now_s: float) -> None:
        state = self._state
        session = state.sessions[asked.session]
        op = asked.request.op
        if not session.spaces and not isinstance(asked.request, Hello):
            self._refuse(asked, Status.HELLO_FIRST, f"{op.name} came before HELLO")
            return
        try:
            reply = self._reply(session, asked, now_s)
        except BadRequest as error:
            self._refuse(asked, Status.BAD_REQUEST, str(error))
            return
        if reply is not None:
            state.actions.append(Answer(asked.session, asked.request_id, op, reply))

    def _reply(self, session: Session, asked: Asked, now_s: float) -> Reply | None:
        """The answer, or None where it was given or refused already, or comes later."""
        state = self._state
        match asked.request:
            case Lookup(keys):
                return lookup.look(state, session, keys, now_s)
            case Prefetch(keys):
                self._following.asked(state, session, keys)
                return lookup.prefetch(state, session, keys, now_s)
            case Locate(keys):
                return Located(lookup.locate(state, session, keys))
            case StorePrepare():
                if self._too_many(session, asked):
                    return None
                _check_space(session, asked.request.space)
                return stores.prepare(state, session, asked.request, now_s)
            case StoreFill():
                return self._fill(session, asked, asked.request, now_s)
            case StoreComplete(ticket, outcome):
                if ticket not in session.stores:
                    self._refuse(asked, Status.UNKNOWN_TICKET, f"no store {ticket} is open")
                    return None
                return stores.complete(state, session, state.stores[ticket], outcome, now_s)
            case LoadPrepare():
                if not self._too_many(session, asked):
                    if not session.announces:
                        self._following.asked(state, session, asked.request.keys)
                    loads.prepare(state, session, asked.request_id, asked.request, now_s)
                return None
            case LoadComplete(ticket):
                if ticket not in session.loads or state.loads[ticket] in state.waiting_loads:
                    self._refuse(asked, Status.UNKNOWN_TICKET, f"no load {ticket} is open")
                    return None
                loads.complete(state, session, state.loads[ticket], asked.request)
                return LoadCompleted()
            case Missed(chains):
                for keys in chains:
                    self._following.asked(state, session, keys)
                    lookup.missed(state, session, keys)
                return Noted()
            case Loaded(chains):
                for keys in chains:
                    if not session.announces:
                        self._following.asked(state, session, keys)
                    loads.read_from_board(state, session, keys)
                return Noted()
            case Discard(keys):
                found = discarding.discard(state, session, keys)
                leaving.work(state, now_s)
                return Discarded(found)
            case StatsRequest():
                return StatsReply(self.stats())
            case Hello():
                return sessions.hello(state, session, asked.request)

    def _fill(
        self, session: Session, asked: Asked, request: StoreFill, now_s: float
    ) -> StoreFilled | None:
        _check_space(session, request.space)
        ticket, stores_ = request.ticket, self._state.stores
        if ticket and not (ticket in session.stores and isinstance(stores_[ticket], Room)):
            self._refuse(asked, Status.UNKNOWN_TICKET, f"no room {ticket} is open")
            return None
        return stores.fill(self._state, session, request, now_s)

    def _too_many(self, session: Session, asked: Asked) -> bool:
        if session.tickets < TICKETS_MAX:
            return False
        self._state.counters.fault("too_many_tickets")
        self._refuse(
            asked, Status.TOO_MANY, f"{session.tickets} tickets are open; complete some first"
        )
        return True

    def _refuse(self, asked: Asked, status: Status, sentence: str) -> None:
        op: Op = asked.request.op
        self._state.actions.append(Refuse(asked.session, asked.request_id, op, status, sentence))

    def _tick(self, now_s: float) -> None:
        state = self._state
        state.breaker.may_read(now_s)  # what finds a disk that hangs
        for load in [load for load in state.waiting_loads if load.deadline_s <= now_s]:
            loads.time_over(state, load, now_s)
        for store in [
            s for s in state.stores.values() if s.quarantined is None and s.deadline_s <= now_s
        ]:
            stores.lapse(state, store)
        for load in [x for x in state.loads.values() if x.deadline_s <= now_s]:
            state.counters.fault("lease_ended")
            leaving.load_over(state, state.sessions[load.session], load)
        leaving.work(state, now_s)
        if now_s - self._rested_s >= REST_S:
            self._rested_s = now_s
            for number in state.segments.ready.intersection(state.resting_segments):
                state.disk.slab.restore(number)
            state.resting_segments.clear()
        writeback.pump(state)  # what was offered again since
        uses.note(state)
        self._keep(now_s)

    def _keep(self, now_s: float) -> None:
        """A bounded part of what nobody waits for: towards the budgets and the watermark."""
        budgets.work(self._state, now_s)
        watermark.keep(self._state)


def _check_space(session: Session, space: int) -> None:
    if space >= len(session.spaces):
        raise BadRequest("space", space, f"this session has {len(session.spaces)} spaces, from 0")
