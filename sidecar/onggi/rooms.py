"""Room ahead: pages that the agent granted for stores that have not begun.

A store that waits for its pages waits for two wake-ups: as long as copying some mebibytes. A client
whose stores follow each other asks for the pages of the next ones while it tells of the last, and
writes to them without asking anybody. Nothing here raises because of an agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from onggi.call import Call
from onggi.channel import ChannelClosed
from onggi.copies import cut, runs
from onggi.link import UNREAD_MAX, Link
from onggi.memory import hold_pages
from onggi.outcomes import Stored
from onggi.session import Session
from onggi.stock import STREAM_S, Room, Stock, row_of
from onggi_core.identity import DIGEST_BYTES, ROOT
from onggi_core.wire.cut import Frame
from onggi_core.wire.fields import keys_to
from onggi_core.wire.frame import Op, frame
from onggi_core.wire.packed import fill_frame, pack_fill
from onggi_core.wire.replies import StoreFilled
from onggi_core.wire.requests import SpaceSpec, StoreComplete, StoreOutcome

REST_S: Final = 1.0
"""How long none is asked for after the agent had none to give."""
_NO_KEYS: Final = keys_to(())
_LENGTHS: Final = {DIGEST_BYTES}


class Rooms:
    """Of one client. Thread-safe, without a lock that a fork could leave held."""

    def __init__(self, link: Link, spaces: tuple[SpaceSpec, ...]) -> None:
        self._link = link
        self._spaces = spaces
        self.stocks: dict[int, Stock] = {}
        """By space, of those that something was stored in."""

    # ---- a store

    def store(
        self, keys: Sequence[bytes], pages: Sequence[Any], parent: bytes, space: int
    ) -> Stored | None:
        """A whole chain into the room that is at hand, as nearly every store of a stream. None: not
        this one, and nothing is kept of it; bulk_store goes the long way. Raises ValueError for a
        page that is none.

        It runs after megabytes were copied, when each function on the way costs some microseconds
        because its code is in no cache. So it is flat, and whatever can be done before the copy is:
        what comes after the copy finds nothing in a cache once more.
        """
        link, count = self._link, len(keys)
        stock, session = self.stocks.get(space), link.current
        if stock is None or session is None or stock.session is not session:
            return None
        if not stock.at_hand and not (link.check(session) and stock.at_hand):
            return None
        channel, shown, now_s = session.channel, session.shown, link.now_s()
        try:
            packed = b"".join(keys)
        except TypeError:
            return None
        if (
            now_s - stock.ended_s > STREAM_S
            or set(map(len, keys)) != _LENGTHS
            or len(packed) != DIGEST_BYTES * count
            or len(pages) != count
            or channel.in_flight >= UNREAD_MAX
            or (shown is not None and not shown.lacks[space](keys[0]))
        ):
            return None
        nbytes, whole, call = stock.page_bytes, False, None
        addresses, _keeper = hold_pages(pages, nbytes, writable=False)
        if (room := stock.take(count, now_s)) is None:
            return None
        try:
            first, offsets, whole_bytes = addresses[0], room.offsets, count * nbytes
            begin, most = offsets[0], session.arena.copy_max_bytes
            if room.row >= count and addresses == [*range(first, first + whole_bytes, nbytes)]:
                pieces = [(begin, first, whole_bytes)]
                if whole_bytes > most:
                    pieces = cut(pieces, most)
            else:
                pieces = cut(runs(offsets[:count], addresses, nbytes), most)
            if stock.blocks != count or not stock.streams:
                stock.begin(count, streams=True)
            stored = stock.stored
            if stored.stored != count:  # another thread's
                stored = Stored(count, 0, 0)
            wanted = count if now_s >= stock.rest_until_s else 0
            if len(offsets) != count:  # another of its size is within the bounds as it was
                wanted = stock.missing(now_s)
            if link.noted:
                link.send_notes(session)  # what room is granted for may push out what was loaded
            call = channel.expect(Op.STORE_FILL)
            call.late = partial(self._came, stock, session, call, wanted, count, now_s)
            request = fill_frame(call.request_id, room.ticket, space, wanted, parent, packed)
            copied = session.arena.write(pieces, channel)
            now_s = link.now_s()
            whole = copied and now_s < room.until_s
        finally:
            if not whole:
                self._forgo(room, call)
        if not whole:
            return None
        stock.ended_s = now_s
        if wanted:
            stock.coming.append((call, wanted))
        try:
            channel.send(request, now_s + link.deadline_s)
        except ChannelClosed as error:
            link.lost(session, str(error))
        return stored

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
        stock.begin(blocks, streams=self._link.now_s() - stock.ended_s <= STREAM_S)

    def end(self, space: int) -> None:
        """It is over; in a stream the room of the next ones is seen to."""
        stock = self._stock(space)
        stock.ended_s = self._link.now_s()
        session = stock.session
        while session is not None and session.open:
            wanted = stock.missing(stock.ended_s)
            if not wanted:
                return
            self._send(stock, session, pack_fill(0, space, wanted, ROOT, _NO_KEYS), wanted, 0)

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
            if room.session.open and self._link.now_s() < room.until_s:
                return room
            self.give_back(room)
        return None

    def fill(self, room: Room, space: int, parent: bytes, packed: bytes, blocks: int) -> None:
        """The room's first pages hold these blocks. packed: their keys (fields.keys_to). Whoever
        asks the agent after this finds them; what it did not keep is counted by the link."""
        stock, session = self._stock(space), room.session
        if session.open:
            wanted = stock.missing(self._link.now_s()) if session is stock.session else 0
            payload = pack_fill(room.ticket, space, wanted, parent, packed)
            self._send(stock, session, payload, wanted, blocks)
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
        for space, stock in tuple(self.stocks.items()):
            if stock.at_hand and self._link.now_s() - stock.ended_s > STREAM_S:
                while stock.at_hand and (room := self.take(space)) is not None:
                    self.give_back(room)

    # ---- inside

    def _stock(self, space: int) -> Stock:
        """A new one after a session is over, and in a child after a fork: what there was is the
        agent's again, or the parent's."""
        stock, session = self.stocks.get(space), self._link.current
        if stock is None or stock.session is not session:
            stock = self.stocks[space] = Stock(session, self._spaces[space].page_bytes)
        return stock

    def _send(
        self, stock: Stock, session: Session, payload: bytes, wanted: int, blocks: int
    ) -> None:
        link, channel = self._link, session.channel
        link.send_notes(session)  # what room is granted for may push out what was loaded
        now_s, call = link.now_s(), channel.expect(Op.STORE_FILL)
        call.late = partial(self._came, stock, session, call, wanted, blocks, now_s)
        if wanted:
            stock.coming.append((call, wanted))
        try:
            channel.send(frame(Op.STORE_FILL, 0, call.request_id, payload), now_s + link.deadline_s)
        except ChannelClosed as error:
            link.lost(session, str(error))
            return
        if channel.in_flight >= UNREAD_MAX:
            link.check(session)  # nobody waits for those, and both sides would fill

    def _await(self, stock: Stock) -> bool:
        """Until a room has come that was asked for, or word that there is none. False: none is on
        its way, or the agent is late or gone."""
        session = stock.session
        try:
            call, _ = stock.coming[0]
        except IndexError:
            return False
        if session is None or not self._link.here(session):
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

    def _forgo(self, room: Room, call: Call | None) -> None:
        """A store that was begun in `store` comes to nothing."""
        if call is not None:
            room.session.channel.forget(call)
        room.session.hold()
        self.give_back(room)

    def _came(
        self,
        stock: Stock,
        session: Session,
        call: Call,
        wanted: int,
        blocks: int,
        sent_s: float,
        answer: Frame,
    ) -> None:
        """On whichever thread has read it. What comes for a stock that is no more is its session's,
        and ends with it."""
        reply = self._link.understand(session, answer)
        if not isinstance(reply, StoreFilled):
            reply = StoreFilled(0, 0, 0, ())
        self._link.count_unsealed(blocks - reply.sealed - reply.existing)
        if not wanted:
            return
        if reply.ticket and reply.offsets:
            until_s, nbytes = sent_s + session.lease_s, stock.page_bytes
            row = row_of(reply.offsets, nbytes)
            stock.at_hand.append(Room(session, reply.ticket, reply.offsets, row, nbytes, until_s))
        else:
            stock.rest_until_s = self._link.now_s() + REST_S
        stock.coming.remove((call, wanted))
