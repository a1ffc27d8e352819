"""Who was promised what, from what was said between engine and world alone.

The checkers go by this and never by the engine's own books.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onggi_core.engine.actions import Action, Answer, Refuse
from onggi_core.engine.events import Asked, Event, SessionClosed, Tick
from onggi_core.engine.state import LEASE_S
from onggi_core.wire.replies import LoadPrepared, Slot, StoreFilled, StorePrepared, Welcome
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadPrepare,
    SpaceSpec,
    StoreComplete,
    StoreFill,
    StorePrepare,
)

REFUSED = frozenset(int(slot) for slot in Slot)


@dataclass(slots=True)
class Pending:
    """A request without an answer yet."""

    asked: Asked
    sent_s: float


@dataclass(slots=True)
class Grant:
    """Pages that a client may write to, until it completes the ticket or its stream ends."""

    ticket: int
    session: int
    space: SpaceSpec
    pages: list[tuple[bytes, int]]
    """(key, arena offset)."""
    given_s: float
    room: bool = False
    """Granted ahead: no page has a key yet."""


@dataclass(slots=True)
class Loan:
    """Pages that a client may read, until it completes, its stream ends or its lease does."""

    ticket: int
    session: int
    spaces: tuple[SpaceSpec, ...]
    keys: tuple[bytes, ...]
    rows: tuple[tuple[int, ...], ...]
    """An offset a block, for each space."""
    sent_s: float

    def pages(self) -> list[tuple[SpaceSpec, bytes, int]]:
        return [
            (space, key, offset)
            for space, row in zip(self.spaces, self.rows, strict=True)
            for key, offset in zip(self.keys, row, strict=False)
        ]


@dataclass(slots=True)
class Change:
    """What one step did to the ledger."""

    opened: list[Grant | Loan]
    closed: list[Grant | Loan]
    sealed: Grant | None = None
    """The store that this step was to make visible; `closed` names it too."""
    answered: list[tuple[Pending, Answer | Refuse]] | None = None


class Ledger:
    def __init__(self) -> None:
        self.sessions: dict[int, tuple[SpaceSpec, ...]] = {}
        self.pending: dict[tuple[int, int], Pending] = {}
        self.grants: dict[int, Grant] = {}
        self.loans: dict[int, Loan] = {}

    def take_event(self, event: Event, now_s: float) -> list[Grant | Loan]:
        """What the event itself ends: before anything that the engine does about it."""
        match event:
            case Asked(session, request_id, request):
                self.pending[session, request_id] = Pending(event, now_s)
                if isinstance(request, StoreComplete):
                    return self._end(self.grants, request.ticket, session)
                if isinstance(request, StoreFill) and self._may_fill(request, session):
                    return self._end(self.grants, request.ticket, session)
                if isinstance(request, LoadComplete):
                    return self._end(self.loans, request.ticket, session)
            case SessionClosed(session):
                self.sessions.pop(session, None)
                self.pending = {k: p for k, p in self.pending.items() if k[0] != session}
                return [
                    *self._end_all(self.grants, session),
                    *self._end_all(self.loans, session),
                ]
            case Tick():
                late = [x for x in self.loans.values() if now_s - x.sent_s >= LEASE_S]
                for loan in late:
                    del self.loans[loan.ticket]
                return list(late)
        return []

    def take_actions(
        self, actions: list[Action], now_s: float, closed: list[Grant | Loan]
    ) -> Change:
        """What the engine's answers give to whom."""
        change = Change([], closed, None, [])
        for action in actions:
            if not isinstance(action, (Answer, Refuse)):
                continue
            pending = self.pending.pop((action.session, action.request_id), None)
            if pending is None:
                continue  # the liveness checker looks at this by itself
            assert change.answered is not None
            change.answered.append((pending, action))
            if isinstance(action, Answer):
                self._answered(pending, action, now_s, change)
        return change

    def _answered(self, pending: Pending, answer: Answer, now_s: float, change: Change) -> None:
        session, request, reply = answer.session, pending.asked.request, answer.reply
        if isinstance(request, Hello) and isinstance(reply, Welcome):
            self.sessions[session] = request.spaces
        elif isinstance(request, StorePrepare) and isinstance(reply, StorePrepared):
            pages = [
                (key, slot)
                for key, slot in zip(request.keys, reply.slots, strict=True)
                if slot not in REFUSED
            ]
            if reply.ticket:
                space = self.sessions[session][request.space]
                grant = Grant(reply.ticket, session, space, pages, now_s)
                self.grants[reply.ticket] = grant
                change.opened.append(grant)
        elif isinstance(request, StoreComplete):
            sealed = getattr(reply, "sealed", 0)
            for grant in change.closed:
                if sealed and isinstance(grant, Grant) and grant.ticket == request.ticket:
                    change.sealed = grant
        elif isinstance(request, StoreFill) and isinstance(reply, StoreFilled):
            self._filled(session, request, reply, now_s, change)
        elif isinstance(request, LoadPrepare) and isinstance(reply, LoadPrepared) and reply.ticket:
            spaces = self.sessions[session]
            loan = Loan(reply.ticket, session, spaces, request.keys, reply.offsets, pending.sent_s)
            self.loans[reply.ticket] = loan
            change.opened.append(loan)

    def _filled(
        self, session: int, request: StoreFill, reply: StoreFilled, now_s: float, change: Change
    ) -> None:
        """What a room holds now, and the next one. A key that somebody else is storing within
        the lease, or that comes twice, is that other page's."""
        space = self.sessions[session][request.space]
        others = {
            key
            for grant in self.grants.values()
            if grant.space == space and now_s - grant.given_s < LEASE_S
            for key, _ in grant.pages
        }
        for room in change.closed:
            if reply.sealed and isinstance(room, Grant) and room.ticket == request.ticket:
                named: dict[bytes, int] = {}
                for key, (_, offset) in zip(request.keys, room.pages, strict=False):
                    if key not in others:
                        named.setdefault(key, offset)
                change.sealed = replace(room, pages=list(named.items()))
        if reply.ticket:
            pages = [(b"", offset) for offset in reply.offsets]
            grant = Grant(reply.ticket, session, space, pages, now_s, room=True)
            self.grants[reply.ticket] = grant
            change.opened.append(grant)

    def _may_fill(self, request: StoreFill, session: int) -> bool:
        """Whether the request is one that may not be refused, for a room that there is."""
        room, spaces = self.grants.get(request.ticket), self.sessions.get(session, ())
        if room is None or not room.room or request.space >= len(spaces):
            return False
        fits = len(request.keys) <= len(room.pages)
        return fits and spaces[request.space] == room.space

    def _end(self, of: dict[int, Grant] | dict[int, Loan], ticket: int, session: int):
        held = of.get(ticket)
        if held is None or held.session != session:
            return []
        del of[ticket]
        return [held]

    def _end_all(self, of: dict[int, Grant] | dict[int, Loan], session: int):
        return [h for t, h in tuple(of.items()) if h.session == session and of.pop(t)]
