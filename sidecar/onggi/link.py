"""The link to the agent that outlives any one connection: attach, ask, and get over trouble.

Everything that can go wrong with an agent ends here, as None: the caller answers MISS. A forked
child gets a link of its own under the same name, since the process id is looked at on each use.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from onggi.call import Call, sentence
from onggi.channel import ChannelClosed
from onggi.clock import Clock
from onggi.misses import Misses
from onggi.patience import Patience
from onggi.session import AttachFailed, Session, attach
from onggi_core.wire.cut import Frame
from onggi_core.wire.frame import FATAL, KEYS_MAX, Status, WireError
from onggi_core.wire.replies import Reply, StoreCompleted, decode_reply
from onggi_core.wire.requests import Hello, Loaded, Request, SpaceSpec, StoreComplete

Then = Callable[[Reply | None], None]
CLOSE_WAIT_S: Final = 1.0
"""For copies of other threads at close(): they take at most some 50 ms."""
REFUSALS_SAID_MAX: Final = 32
"""Different sentences logged over a process's life; a peer that makes up new ones cannot flood."""
UNREAD_MAX: Final = 16
"""Answers nobody waits for that may lie unread: some hundred fill a unix socket."""
NOTE_KEYS: Final = 256
"""Keys loaded from the board that are told at once: a frame of 4 KiB, 4 MiB of small pages."""
NOTE_EVERY_S: Final = 1.0
"""After as long as this the next load tells at once. What ranks blocks counts in minutes."""
_TRY_LATER: Final = frozenset({Status.STOPPING, Status.TOO_MANY})
"""Refusals that say something about the agent's state and not about the request."""


class Asked(NamedTuple):
    """A request under way. sent_s: when it was sent, from which leases are counted."""

    session: Session
    call: Call
    sent_s: float


class Link:
    """Thread-safe. `ask` and its kin never raise because of an agent."""

    def __init__(
        self,
        socket_path: str,
        spaces: tuple[SpaceSpec, ...],
        engine: str,
        deadline_s: float,
        log: logging.Logger,
        clock: Clock,
    ) -> None:
        self.deadline_s = deadline_s
        self.now_s = clock
        self._socket_path = socket_path
        self._spaces = spaces
        self._engine = engine
        self._log = log
        self.unsealed_blocks, self.closed = 0, False
        self._session: Session | None = None
        self._sessions: dict[int, Session] = {}
        self._begin_in_this_process()

    def _begin_in_this_process(self) -> None:
        for session in self._sessions.values():  # a fork: what we hold is the parent's
            session.channel.let_go()
        self._session, self._sessions = None, {}
        self._pid = os.getpid()
        self._attaching, self._noting = threading.Lock(), threading.Lock()
        self._patience = Patience(self._log, f"agent at {self._socket_path}", self.now_s)
        self._refusals: set[str] = set()
        self.sought_epoch = b""
        """Of pages of another process, whose agent was attached to at once, or tried to."""
        self.noted: list[tuple[bytes, ...]] = []
        """Chains loaded from the board that the agent has not heard of."""
        self._noted_keys, self._noted_s = 0, -NOTE_EVERY_S
        self.misses = Misses(self)

    def session(self, within_s: float = 0.0) -> Session | None:
        """The session to use now, attaching if it is time to; None: go on without. within_s: attach
        now, and take as long as that, or wait so long for the thread that does."""
        if self._pid != os.getpid():
            self._begin_in_this_process()
        if self._patience.failures and not within_s and not self._patience.may_try():
            return None
        session = self._session
        if session is not None and not session.channel.closed:
            return session
        if self.closed or not self._attaching.acquire(timeout=within_s):
            return None  # closed, or another thread attaches: that one's caller pays, we miss
        try:
            session = self._session
            if session is not None and not session.channel.closed:
                return session  # the other thread's
            hello = Hello(self._pid, self._engine, self._spaces)
            self._session = session = attach(self._socket_path, hello, self.now_s, within_s)
            self._sessions = {n: s for n, s in self._sessions.items() if not s.channel.shut}
            self._sessions[session.number] = session
        except AttachFailed as failed:
            self._session = None
            self._patience.failed(str(failed))
            return None
        finally:
            self._attaching.release()
        self._patience.went_well()
        if self.closed:
            self.close()  # type: ignore[unreachable]  # by another thread, meanwhile
        return self._session

    def showing(self) -> Session | None:
        """The session, if its agent has a board to read. One that has just ended still shows what
        it held, until it is noticed or its arena taken back."""
        session = self._session
        if session is None or self._pid != os.getpid() or not session.open:
            session = self.session()
        return session if session is not None and session.shown is not None else None

    @property
    def current(self) -> Session | None:
        """The session as it is, without attaching."""
        return self._session if self._pid == os.getpid() else None

    def held(self, number: int) -> Session | None:
        """The session a ticket belongs to, while the agent still holds it open for us."""
        session = self.holder(number)
        return session if session is not None and session.open else None

    def holder(self, number: int) -> Session | None:
        """The same, also after its connection failed: what is held there has to be given back
        before the agent may hear of the end."""
        return self._sessions.get(number) if self._pid == os.getpid() else None

    def here(self, session: Session) -> bool:
        """Whether a call of that session may still be waited for: not the parent's after a fork,
        whose replies are the parent's to read."""
        if self._pid != os.getpid():
            self._begin_in_this_process()
        return session.open

    def begin(self, op: int, payload: bytes) -> Asked | None:
        """Send a request and do not wait."""
        session = self.session()
        if session is None:
            return None
        if self.noted:
            self.send_notes(session)  # what is asked now may be what makes room
        return self._send(session, op, payload)

    def end(
        self, asked: Asked, what: str, on_late: Callable[[Frame], None] | None = None
    ) -> Reply | None:
        """Wait for the reply, within this link's deadline. on_late: gets a reply that comes after
        all, to give back what it brings."""
        channel = asked.session.channel
        if not self.here(asked.session):
            self.lost(asked.session, "closed")
            return None
        try:
            answer = channel.wait(asked.call, asked.sent_s + self.deadline_s)
        except ChannelClosed as error:
            self.lost(asked.session, str(error))
            return None
        if answer is None:
            channel.give_up(asked.call, on_late)
            self.late(asked.session, what, self.deadline_s)
            return None
        return self.understand(asked.session, answer)

    def begin_on(self, session: Session, request: Request) -> Asked | None:
        """Send on a session that may not be the current one: the end of a ticket it gave."""
        return self._send(session, request.op, request.encode())

    def _send(
        self,
        session: Session,
        op: int,
        payload: bytes,
        late: Callable[[Frame], None] | None = None,
    ) -> Asked | None:
        sent_s = self.now_s()
        try:
            call = session.channel.start(op, payload, sent_s + self.deadline_s, late)
        except ChannelClosed as error:
            self.lost(session, str(error))
            return None
        return Asked(session, call, sent_s)

    def tell(self, session: Session, request: Request) -> bool:
        """Send a request whose reply nobody needs. False: there was nobody to send it to."""
        return self.tell_and(session, request.op, request.encode()) is not None

    def note(self, session: Session, keys: Sequence[bytes]) -> bool:
        """Tell the agent what was loaded from its board, some loads at a time: waking it costs
        more than finding the blocks. True: told now."""
        with self._noting:
            self.noted.append(tuple(keys[: KEYS_MAX - NOTE_KEYS]))  # with the others, one frame
            self._noted_keys += len(keys)
            soon = self.now_s() - self._noted_s < NOTE_EVERY_S
            if soon and self._noted_keys < NOTE_KEYS:
                return False
        self.send_notes(session)
        return True

    def send_notes(self, session: Session) -> None:
        """Say what was not said yet."""
        with self._noting:
            noted, self.noted, self._noted_keys = self.noted, [], 0
            self._noted_s = self.now_s()
        if noted:
            self.tell(session, Loaded(tuple(noted)))

    def tell_of_store(self, session: Session, request: StoreComplete, sealed: int) -> None:
        """End a store without waiting. sealed: how many blocks that should make visible."""

        def compare(reply: Reply | None) -> None:
            self.count_unsealed(sealed - (reply.sealed if isinstance(reply, StoreCompleted) else 0))

        self.tell_and(session, request.op, request.encode(), compare)

    def tell_and(
        self, session: Session, op: int, payload: bytes, then: Then | None = None
    ) -> Asked | None:
        """Send a request and go on. `then` gets the reply, None for a refusal, when it is read, and
        nothing if the session ends before."""
        late = (lambda answer: then(self.understand(session, answer))) if then else None
        asked = self._send(session, op, payload, late)
        if asked is not None and session.channel.in_flight >= UNREAD_MAX:
            self.check(session)  # nobody waits for those, and both sides would fill
        return asked

    def count_unsealed(self, blocks: int) -> None:
        """Blocks that were handed over and that the agent did not keep."""
        if blocks > 0:
            self.unsealed_blocks += blocks
            self._say_once("stored blocks were not sealed: their lease was over")

    def check(self, session: Session) -> bool:
        """Take in what the agent sent unasked or late. False: the stream has ended."""
        try:
            session.channel.drain()
        except ChannelClosed as error:
            self.lost(session, str(error))
            return False
        return True

    def understand(self, session: Session, answer: Frame) -> Reply | None:
        """The reply in a frame; a refusal is None, said once for each sentence."""
        if answer.status == Status.OK:
            try:
                reply = decode_reply(answer.op, answer.payload)
            except WireError as error:
                session.channel.close(error.sentence)
                self.lost(session, f"nonsense from the agent: {error.sentence}")
                return None
            self._patience.went_well()
            return reply
        said = sentence(answer)
        if answer.status in _TRY_LATER or answer.status in FATAL:
            self._patience.failed(said)
        else:
            self._say_once(f"the agent refused a request: {said}")
        return None

    def _say_once(self, said: str) -> None:
        if said not in self._refusals and len(self._refusals) < REFUSALS_SAID_MAX:
            self._refusals.add(said)
            self._log.warning("onggi: %s", said)

    def late(self, session: Session, what: str, given_s: float) -> None:
        """An answer did not come within `given_s`. Enough of them in a row end the session."""
        why = f"no answer to {what} within {given_s * 1000:.0f} ms"
        if self._patience.was_late(why):
            session.close_when_free(why)
            if session is self._session:
                self._session = None

    def lost(self, session: Session, why: str) -> None:
        """The connection is gone. The first caller that notices counts it."""
        if session is self._session:
            self._session = None
            self._patience.failed(f"connection lost: {why}")

    def close(self) -> None:
        """End the session; calls answer MISS from now on. A store that is copying ends first."""
        self.closed = True
        session = self.current
        if session is None:
            return
        self.send_notes(session)
        self.misses.tell(session)
        self._session = None
        session.end("closed by the client", CLOSE_WAIT_S)
