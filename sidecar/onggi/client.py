"""The client of an agent: look up, load and store blocks of KV cache.

Made for the inside of an engine. It never raises because an agent is absent, slow or confused (such
calls answer MISS within their deadline, with one log line for the whole trouble), it starts no
thread but one for long copies, and it may be called from any thread and after a fork: a child
attaches for itself and leaves its parent's session alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Final

from onggi import attaching, bulk, bulk_store, checks, discarding, locating, looking
from onggi.arena import Arena
from onggi.arguments import named
from onggi.checks import held_pages, of_type, packed_keys
from onggi.clock import Clock, monotonic
from onggi.link import UNREAD_MAX, Asked, Link
from onggi.locating import PendingTiers
from onggi.outcomes import (
    NOTHING,
    OTHER_PROCESS,
    Load,
    Looked,
    Pages,
    Stored,
    StoreTicket,
)
from onggi.pending import PendingLoad, PendingStore
from onggi.rooms import Rooms
from onggi.session import Session
from onggi_core.identity import ROOT
from onggi_core.wire.frame import Op
from onggi_core.wire.packed import pack_load, pack_store
from onggi_core.wire.replies import StatsReply, StoreCompleted
from onggi_core.wire.requests import (
    LoadComplete,
    LoadOutcome,
    SpaceSpec,
    StoreComplete,
    StoreOutcome,
)

DEADLINE_S: Final = 0.05
"""Default of a call: a thousand times what it takes, and little beside any prefill worth saving."""

WAIT_MAX_S: Final = 60.0
"""Longest wait for a promotion; whoever waits longer has lost track."""


class Client:
    """See the module. spaces: one a rank whose pages are named in loads; a block must be in all."""

    @named
    def __init__(
        self,
        socket_path: str | os.PathLike[str],
        *,
        spaces: Sequence[SpaceSpec],
        engine: str = "",
        deadline_s: float = DEADLINE_S,
        log: logging.Logger | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """Nothing is opened before the first call. Like all calls it raises TypeError or ValueError
        for a wrong argument, and nothing for an agent."""
        self.spaces = checks.spaces(spaces)
        self.deadline_s = checks.deadline(deadline_s, WAIT_MAX_S)
        self.now_s = clock
        self._link = Link(
            checks.socket_path(socket_path),
            self.spaces,
            checks.engine(engine),
            self.deadline_s,
            log or logging.getLogger("onggi"),
            clock,
        )
        self.rooms = Rooms(self._link, self.spaces)

    @property
    def attached(self) -> bool:
        """True if there is a session; tries to attach when it is time to."""
        session = self._link.session()
        if session is None or not session.channel.hung_up:
            return session is not None
        self._link.check(session)  # which notices it, behind a last answer at the second time
        return False

    def attach(self, wait_s: float) -> bool:
        """Attach, and wait up to wait_s for an agent that is not there yet or slow to answer: for a
        program that has nothing to do without one. False: the log has said why."""
        return attaching.attach(self._link, checks.seconds("wait_s", wait_s))

    def tidy(self) -> None:
        """Send notes, take in late replies, give back room: for whoever may not call again soon."""
        session = self._link.current
        if session is not None and session.open:
            if self._link.noted:
                self._link.send_notes(session)
            self._link.misses.tell_if_due(session)
            if session.channel.in_flight:
                self._link.check(session)
            self.rooms.tidy()

    def populate_next(self) -> bool:
        """See Arena.populate_next; False while there is no session."""
        session = self._link.current
        return session is not None and session.open and session.arena.populate_next()

    @property
    def session_number(self) -> int:
        """Changes with each attachment; 0 while there is none."""
        session = self._link.current
        return session.number if session is not None else 0

    def close(self) -> None:
        """End the session. The agent drops the pins and reservations it held; views stay valid."""
        self._link.close()

    # ---- what is there

    def lookup(self, keys: Sequence[bytes]) -> Looked:
        """How much of a chain is there. Looked(0, 0) when the agent is gone or late."""
        session = self.showing() if checks.keys_of(keys) else None
        shown = session.shown if session is not None and not session.channel.hung_up else None
        if shown is not None and shown.look(keys):
            return Looked(len(keys), len(keys))
        return self.find(keys) or NOTHING

    def find(self, keys: Sequence[bytes]) -> Looked | None:
        """As lookup(), by the agent's own word; None when it is gone or late."""
        asked = self._link.begin(Op.LOOKUP, packed_keys(keys))
        return looking.answer(self._link, asked, "LOOKUP")

    def prefetch(self, keys: Sequence[bytes]) -> Looked:
        """As lookup(), and the agent starts to bring what lies on disk into host memory."""
        return self.prefetch_end(self.prefetch_begin(keys))

    def prefetch_begin(self, keys: Sequence[bytes]) -> Asked | None:
        """Send prefetch() and do other things; prefetch_end() has the answer."""
        asked = self._link.begin(Op.PREFETCH, packed_keys(keys))
        if asked is not None and asked.session.channel.in_flight >= UNREAD_MAX:
            self._link.check(asked.session)  # whoever only sends must read too, or both sides fill
        return asked

    def prefetch_end(self, asked: Asked | None) -> Looked:
        """The answer to prefetch_begin(), within the deadline counted from there."""
        return looking.answer(self._link, asked, "PREFETCH") or NOTHING

    def misses(self, keys: Sequence[bytes], *, noted: bool = False) -> bool:
        """Whether, as the board tells, no tier holds the first block of this prompt; then there is
        nothing to ask for. False: ask. noted: it counts as a prompt that was asked about."""
        sure = bool(keys) and self._link.misses.sure(keys)
        if sure and noted and checks.keys_of(keys):
            self._link.misses.note(keys)
        return sure

    def locate_begin(self, keys: Sequence[bytes]) -> PendingTiers | None:
        """Send a question and do other things: where blocks lie, in any order, 1,024 at most. It is
        no use of them. None: there is nobody to ask, or an agent of an earlier version."""
        return locating.begin(self._link, keys)

    def stats(self) -> dict[str, Any]:
        """What the agent says about itself; empty when it is gone or late."""
        asked = self._link.begin(Op.STATS, b"")
        reply = self._link.end(asked, "STATS") if asked is not None else None
        return reply.stats if isinstance(reply, StatsReply) else {}

    # ---- loading

    def load_prepare(self, keys: Sequence[bytes], *, wait_s: float = 0.0) -> PendingLoad:
        """Ask for the longest leading run, brought from disk if need be and pinned.

        wait_s: how long the agent may take to bring blocks from disk; 0: only what is in host
        memory. Finish each load with finish_load(), whatever became of it.
        """
        wait_s = min(checks.seconds("wait_s", wait_s), WAIT_MAX_S)
        asked = self._link.begin(Op.LOAD_PREPARE, pack_load(int(wait_s * 1000), packed_keys(keys)))
        due_s = asked.sent_s + wait_s + self._link.deadline_s if asked is not None else 0.0
        return PendingLoad(self._link, asked, due_s, self.spaces, self.finish_load)

    def finish_load(self, load: Load, outcome: LoadOutcome, *, blocks: int | None = None) -> bool:
        """Give the pin back. blocks: how many leading blocks are in use now, if not all. True: the
        agent was there to be told, so it has kept the pages until now (unless their time is up)."""
        used = checks.blocks_used(load, outcome, blocks)
        session = self._link.holder(load.session)
        if not load.blocks or session is None:
            return False  # nothing was pinned, or the pin ended with its session
        told = session.open and self._link.tell(session, LoadComplete(load.ticket, outcome, used))
        session.release()
        return told

    def showing(self) -> Session | None:
        """See Link."""
        return self._link.showing()

    def note_loaded(self, session: Session, keys: Sequence[bytes]) -> None:
        """Let the agent know, in time, what was loaded from its board."""
        if self._link.note(session, keys):
            self.rooms.tidy()  # now and then

    # ---- storing

    def store_prepare(
        self, keys: Sequence[bytes], *, parent: bytes = ROOT, space: int = 0
    ) -> StoreTicket:
        """Room for a chain that follows `parent`. Finish it with finish_store()."""
        return self.store_begin(keys, parent=parent, space=space).wait()

    def store_begin(
        self, keys: Sequence[bytes], *, parent: bytes = ROOT, space: int = 0
    ) -> PendingStore:
        """Send store_prepare() and do other things; wait() has the answer, cancel() forgoes it."""
        packed, parent = packed_keys(keys), checks.parent(parent)
        checks.space_number(space, self.spaces)
        asked = self._link.begin(Op.STORE_PREPARE, pack_store(space, parent, packed))
        return PendingStore(self._link, asked, len(keys), self.spaces[space].page_bytes)

    def finish_store(self, ticket: StoreTicket, outcome: StoreOutcome) -> int:
        """Seal what was copied, or drop it. Returns the blocks that are visible from now on."""
        checks.finished(ticket, outcome)
        session = self._link.holder(ticket.session)
        if session is None:
            return 0  # nothing was reserved, or the reservation ended with its session
        asked = None
        if session.open:
            asked = self._link.begin_on(session, StoreComplete(ticket.ticket, outcome))
        reply = self._link.end(asked, "STORE_COMPLETE") if asked is not None else None
        session.release()
        return reply.sealed if isinstance(reply, StoreCompleted) else 0

    def finish_store_later(self, ticket: StoreTicket, outcome: StoreOutcome) -> None:
        """The same without waiting: whoever asks the agent after this finds the blocks. Blocks that
        were not sealed after all are counted in `unsealed_blocks` and logged once."""
        checks.finished(ticket, outcome)
        session = self._link.holder(ticket.session)
        if session is None:
            return
        sealed = len(ticket.granted) if outcome is StoreOutcome.SEALED else 0
        if session.open:
            self._link.tell_of_store(session, StoreComplete(ticket.ticket, outcome), sealed)
        session.release()

    @property
    def unsealed_blocks(self) -> int:
        """Blocks that store() or finish_store_later() handed over and the agent did not keep."""
        return self._link.unsealed_blocks

    def discard(self, keys: Sequence[bytes]) -> int:
        """These blocks, of all spaces, are worth nothing from now on: their pages go before any
        other's, a restart included. How many the agent held; 0 when it is gone or late."""
        return discarding.discard(self._link, keys)

    # ---- copying

    def arena(self, pages: Pages) -> Arena | None:
        """The mapping that `pages` lie in; None: they are gone. Attaches if need be.

        For whoever addresses memory in pieces (arena.copy_out, copy_in) and looks at expires_s
        himself. Pages of another process are found by their epoch.
        """
        return attaching.arena_of(self._link, of_type("pages", pages, Pages))

    def copy_out(self, pages: Pages, buffers: Sequence[Any]) -> bool:
        """Arena to memory, one writable buffer or CPU tensor a page. False: the pages are gone
        (agent restarted, lease over), and what the buffers hold is worth nothing."""
        return bulk.move_out(self, pages, held_pages(buffers, pages, writable=True))

    def holds(self, pages: Pages) -> bool:
        """Whether the agent keeps `pages` for us as far as a look at the stream can tell; True for
        those of another process. For whoever copies out in pieces: ask after the last byte, since
        an agent that dropped us gives them to others."""
        if of_type("pages", pages, Pages).session == OTHER_PROCESS:
            return True
        session = self._link.held(pages.session)
        return session is not None and not session.channel.hung_up

    def copy_in(self, pages: Pages, buffers: Sequence[Any]) -> bool:
        """Memory to arena, one buffer or CPU tensor a page. False: do not seal."""
        return bulk.move_in(self, pages, held_pages(buffers, pages, writable=False))

    # ---- all in one

    def store(
        self, keys: Sequence[bytes], pages: Any, *, parent: bytes = ROOT, space: int = 0
    ) -> Stored:
        """Keep a chain of blocks: reserve, copy, seal. pages: one buffer or CPU tensor a key, or
        one that has them all, which costs less the smaller they are. What the agent then did not
        keep is counted in `unsealed_blocks`."""
        return bulk_store.store(self, keys, pages, parent, space)

    def load(
        self, keys: Sequence[bytes], pages: Any, *, wait_s: float = 0.0, space: int = 0
    ) -> int:
        """Fill the buffers of the longest leading run; returns its length in blocks, 0 on a miss.
        pages: as in store(). Buffers behind it may have been written to and are worth nothing."""
        return bulk.load(self, keys, pages, wait_s, space)
