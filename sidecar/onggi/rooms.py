"""Room ahead: pages that the agent granted for stores that have not begun.

A store that waits for its pages waits for two wake-ups: as long as copying some mebibytes. A client
whose stores follow each other asks for the pages of the next ones while it tells of the last, and
writes to them without asking anybody. Nothing here raises because of an agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from onggi.channel import Call, ChannelClosed
from onggi.link import Link
from onggi.outcomes import Pages
from onggi.session import Session
from onggi_core.identity import ROOT
from onggi_core.wire.fields import keys_to
from onggi_core.wire.frame import Op
from onggi_core.wire.replies import Reply, StoreFilled
from onggi_core.wire.requests import SpaceSpec, StoreComplete, StoreOutcome, pack_fill

STREAM_S: Final = 1.0
"""Stores that follow each other within this are a stream. Its room is given back after as long: the
agent has other uses for the pages, and would take back a lease of theirs in half a minute."""
AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Pages held or on their way: some three milliseconds of copying. While one room is written to the
answers that bring the next ones come."""
ROOMS_MAX: Final = 4
"""The same in rooms: small stores need no more, and each is half of AHEAD_BYTES at most."""
REST_S: Final = 1.0
"""How long none is asked for after the agent had none to give."""
_NO_KEYS: Final = keys_to(())


class Room(NamedTuple):
    """Pages to write to, in order. Whoever has taken it ends it by `fill` or `give_back`."""

    session: Session
    ticket: int
    pages: Pages

    def first(self, count: int) -> Pages:
        """So many of its pages."""
        return self.pages if count == len(self.pages.offsets) else self.pages.part(0, count)


class _Asked:
    """A STORE_FILL on its way. call: None until it is sent."""

    __slots__ = ("blocks", "call", "sent_s", "wanted")

    def __init__(self, wanted: int, sent_s: float) -> None:
        self.wanted = wanted
        self.sent_s = sent_s
        self.blocks = 0
        """Handed over with it."""
        self.call: Call | None = None


class _Stock:
    """Of one space and one session. Each change is one call that the interpreter does not part;
    two threads that ask at one time may ask for a room too many."""

    def __init__(self, session: Session | None, page_bytes: int) -> None:
        self.session = session
        self.page_bytes = page_bytes
        self.at_hand: deque[Room] = deque()
        self.coming: deque[_Asked] = deque()
        """Those that ask for a room, in order."""
        self.blocks = 0
        """Of the present store: the next ones will be as large."""
        self.streams = False
        self.ended_s = float("-inf")
        """When the last store was over."""
        self.rest_until_s = 0.0

    @property
    def missing(self) -> int:
        """Pages of a room to ask for now; 0 for none."""
        most = AHEAD_BYTES // self.page_bytes
        pages = min(self.blocks, most // 2)
        ahead = [len(room.pages.offsets) for room in tuple(self.at_hand)]
        ahead += [asked.wanted for asked in tuple(self.coming)]
        full = len(ahead) >= ROOMS_MAX or sum(ahead) + pages > most
        return 0 if full else pages


class Rooms:
    """Of one client. Thread-safe, without a lock that a fork could leave held."""

    def __init__(self, link: Link, spaces: tuple[SpaceSpec, ...]) -> None:
        self._link = link
        self._spaces = spaces
        self._stocks: dict[int, _Stock] = {}
        """By space, of those that something was stored in."""

    # ---- a store

    def leading_known(self, keys: Sequence[bytes], space: int) -> int:
        """How many of the first blocks the board shows: they need no room, nor to be copied again.
        One that is there and not shown costs a copy, no more."""
        session = self._link.current
        if session is None or session.shown is None:
            return 0
        return session.shown.leading(keys, space)

    def begin(self, space: int, blocks: int) -> None:
        """A store of so many blocks begins."""
        stock = self._stock(space)
        stock.streams = self._link.now_s() - stock.ended_s <= STREAM_S
        stock.blocks = blocks

    def end(self, space: int) -> None:
        """It is over; in a stream the room of the next ones is seen to."""
        stock = self._stock(space)
        stock.ended_s = self._link.now_s()
        while stock.session is not None and stock.session.open:
            asked = self._next(stock)
            if not asked.wanted:
                return
            payload = pack_fill(0, space, asked.wanted, ROOT, _NO_KEYS)
            self._send(stock, stock.session, asked, payload)

    def take(self, space: int) -> Room | None:
        """The next room, waited for within the link's deadline where it is on its way; None: ask
        for pages instead."""
        stock = self._stock(space)
        while stock.at_hand or self._await(stock):
            try:
                room = stock.at_hand.popleft()
            except IndexError:  # another thread was faster
                continue
            room.session.hold()
            if room.session.open and self._link.now_s() < room.pages.expires_s:
                return room
            self.give_back(room)
        return None

    def fill(self, room: Room, space: int, parent: bytes, packed: bytes, blocks: int) -> None:
        """The room's first pages hold these blocks. packed: their keys (fields.keys_to). Whoever
        asks the agent after this finds them; what it did not keep is counted by the link."""
        stock, session = self._stock(space), room.session
        if session.open:
            same = session is stock.session
            asked = self._next(stock) if same else _Asked(0, self._link.now_s())
            asked.blocks = blocks
            payload = pack_fill(room.ticket, space, asked.wanted, parent, packed)
            self._send(stock, session, asked, payload)
        session.release()

    def put_back(self, room: Room, space: int) -> None:
        """The room was not written to after all."""
        self._stock(space).at_hand.appendleft(room)
        room.session.release()

    def give_back(self, room: Room) -> None:
        """Nothing is to be kept of what was written to a room that was taken."""
        if room.session.open:
            self._link.tell(room.session, StoreComplete(room.ticket, StoreOutcome.ABANDONED))
        room.session.release()

    # ---- between stores

    def tidy(self) -> None:
        """Give back what a stream that is over has left."""
        for space, stock in tuple(self._stocks.items()):
            if stock.at_hand and self._link.now_s() - stock.ended_s > STREAM_S:
                while stock.at_hand and (room := self.take(space)) is not None:
                    self.give_back(room)

    # ---- inside

    def _stock(self, space: int) -> _Stock:
        """A new one after a session is over, and in a child after a fork: what there was is the
        agent's again, or the parent's."""
        stock, session = self._stocks.get(space), self._link.current
        if stock is None or stock.session is not session:
            stock = self._stocks[space] = _Stock(session, self._spaces[space].page_bytes)
        return stock

    def _next(self, stock: _Stock) -> _Asked:
        """What asks for a room if one is missing."""
        now_s = self._link.now_s()
        may = stock.streams and now_s >= stock.rest_until_s
        asked = _Asked(stock.missing if may else 0, now_s)
        if asked.wanted:
            stock.coming.append(asked)
        return asked

    def _send(self, stock: _Stock, session: Session, asked: _Asked, payload: bytes) -> None:
        def answered(reply: Reply | None) -> None:
            self._answered(stock, session, asked, reply)

        self._link.send_notes(session)  # what room is granted for may push out what was loaded
        sent = self._link.tell_and(session, Op.STORE_FILL, payload, answered)
        if sent is not None:
            asked.call = sent.call

    def _await(self, stock: _Stock) -> bool:
        """Until a room has come that was asked for, or word that there is none. False: none is on
        its way, or the agent is late or gone."""
        session = stock.session
        try:
            call = stock.coming[0].call
        except IndexError:
            return False
        if session is None or call is None or not self._link.here(session):
            return False
        deadline_s = self._link.deadline_s
        try:
            came = session.channel.wait(call, self._link.now_s() + deadline_s)
        except ChannelClosed as error:
            self._link.lost(session, str(error))
            return False
        if came is None:
            self._link.late(session, "STORE_FILL", deadline_s)
        return came is not None

    def _answered(
        self, stock: _Stock, session: Session, asked: _Asked, reply: Reply | None
    ) -> None:
        """On whichever thread has read it. What comes for a stock that is no more is its session's,
        and ends with it."""
        if not isinstance(reply, StoreFilled):
            reply = StoreFilled(0, 0, 0, ())
        self._link.count_unsealed(asked.blocks - reply.sealed - reply.existing)
        if not asked.wanted:
            return
        if reply.ticket:
            until_s = asked.sent_s + session.lease_s
            pages = Pages(session.epoch, reply.offsets, stock.page_bytes, until_s, session.number)
            stock.at_hand.append(Room(session, reply.ticket, pages))
        else:
            stock.rest_until_s = self._link.now_s() + REST_S
        stock.coming.remove(asked)
