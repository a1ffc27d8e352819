"""Requests on their way: a load, for which the agent may read from disk, and a store's room."""

from __future__ import annotations

from collections.abc import Callable

from onggi import checks
from onggi.channel import ChannelClosed
from onggi.link import Asked, Link
from onggi.outcomes import NO_EPOCH, NO_LOAD, Load, Pages, StoreTicket
from onggi_core.wire.cut import Frame
from onggi_core.wire.replies import LoadPrepared, Slot, StorePrepared
from onggi_core.wire.requests import LoadOutcome, SpaceSpec, StoreComplete, StoreOutcome


class PendingLoad:
    """Answered at most once. Ask with poll() or wait(); what is not wanted any more, cancel()."""

    def __init__(
        self,
        link: Link,
        asked: Asked | None,
        due_s: float,
        spaces: tuple[SpaceSpec, ...],
        finish: Callable[[Load, LoadOutcome], object],
    ) -> None:
        """asked None: a miss from the start. due_s: when even a slow promotion should be over."""
        self._link = link
        self._asked = asked
        self._due_s = due_s
        self._spaces = spaces
        self._finish = finish
        self._load: Load | None = NO_LOAD if asked is None else None

    @property
    def owed(self) -> bool:
        """Whether the answer, cancelled or not, may still come in its time. A pin that it brings is
        given back by whoever reads it, so somebody has to."""
        asked = self._asked
        if asked is None or asked.call.frame is not None or not self._link.here(asked.session):
            return False
        return self._link.now_s() < self._due_s

    def poll(self) -> Load | None:
        """The load once it is answered (of 0 blocks: a miss), None before. Never blocks."""
        return self._await(0.0)

    def wait(self, timeout_s: float) -> Load:
        """The load. A miss if there is no answer in time; a pin that comes later is given back.
        Raises TypeError and ValueError for what is no time."""
        load = self._await(self._link.now_s() + checks.seconds("timeout_s", timeout_s))
        if load is None:
            self.cancel()
            return NO_LOAD
        return load

    def cancel(self) -> None:
        """Give back the pin, whether it is here or still to come."""
        load, asked = self._load, self._asked
        self._load = NO_LOAD
        if load is None and asked is not None:
            if self._link.here(asked.session):
                asked.session.channel.give_up(asked.call, self._give_back)
        elif load is not None:
            self._finish(load, LoadOutcome.UNUSED)

    def _await(self, deadline_s: float) -> Load | None:
        asked = self._asked
        if self._load is not None or asked is None:
            return self._load
        channel = asked.session.channel
        if not self._link.here(asked.session):
            self._link.lost(asked.session, "closed")
            self._load = NO_LOAD
            return NO_LOAD
        try:
            answer = channel.wait(asked.call, min(deadline_s, self._due_s))
        except ChannelClosed as error:
            self._link.lost(asked.session, str(error))
            self._load = NO_LOAD
            return NO_LOAD
        if answer is not None:
            self._load = self._read(asked, answer)
        elif self._link.now_s() >= self._due_s:
            self._load = NO_LOAD
            channel.give_up(asked.call, self._give_back)
            self._link.late(asked.session, "LOAD_PREPARE", self._due_s - asked.sent_s)
        return self._load

    def _read(self, asked: Asked, answer: Frame) -> Load:
        reply = self._link.understand(asked.session, answer)
        if not isinstance(reply, LoadPrepared) or len(reply.offsets) != len(self._spaces):
            return NO_LOAD
        if not reply.blocks:
            return NO_LOAD
        session = asked.session
        session.hold()
        epoch, until_s, number = session.epoch, asked.sent_s + session.lease_s, session.number
        rows = tuple(
            [
                Pages(epoch, offsets, space.page_bytes, until_s, number)
                for space, offsets in zip(self._spaces, reply.offsets, strict=True)
            ]
        )
        return Load(reply.blocks, rows, reply.from_disk, reply.ticket, number)

    def _give_back(self, answer: Frame) -> None:
        if self._asked is not None:
            self._finish(self._read(self._asked, answer), LoadOutcome.UNUSED)


class PendingStore:
    """Waited for once, or cancelled."""

    def __init__(self, link: Link, asked: Asked | None, blocks: int, page_bytes: int) -> None:
        """asked None: no room from the start."""
        self.blocks = blocks
        self._link = link
        self._asked = asked
        self._page_bytes = page_bytes

    def wait(self) -> StoreTicket:
        """The room there is, within the link's deadline; room that comes later is given back."""
        nothing = StoreTicket((Slot.NO_ROOM,) * self.blocks, NO_EPOCH, self._page_bytes, 0.0, 0, 0)
        asked, self._asked = self._asked, None
        if asked is None:
            return nothing
        session = asked.session
        reply = self._link.end(asked, "STORE_PREPARE", lambda late: self._abandon(asked, late))
        if not isinstance(reply, StorePrepared) or len(reply.slots) != self.blocks:
            return nothing
        until_s = asked.sent_s + session.lease_s
        if reply.ticket:
            session.hold()
        return StoreTicket(
            reply.slots,
            session.epoch,
            self._page_bytes,
            until_s,
            reply.ticket,
            session.number if reply.ticket else 0,
        )

    def cancel(self) -> None:
        """Give the room back, whether it is here or still to come."""
        asked, self._asked = self._asked, None
        if asked is not None and self._link.here(asked.session):
            asked.session.channel.give_up(asked.call, lambda late: self._abandon(asked, late))

    def _abandon(self, asked: Asked, late: Frame) -> None:
        reply = self._link.understand(asked.session, late)
        if isinstance(reply, StorePrepared) and reply.ticket:
            self._link.tell(asked.session, StoreComplete(reply.ticket, StoreOutcome.ABANDONED))
