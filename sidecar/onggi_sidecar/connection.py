"""One client's stream: frames in, frames out. All of it runs on the data plane."""

import select
import socket
from typing import TYPE_CHECKING, Final

from onggi_core.engine.events import Asked
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import FATAL, Op, Status, WireError, refusal
from onggi_core.wire.requests import decode_request

if TYPE_CHECKING:
    from onggi_sidecar.server import Server

READ_BYTES: Final = 64 * 1024
"""Most bytes taken from one client at a time, and what a client may have of an unfinished frame
without asking for room: 4,096 keys."""
FRAMES_A_TURN: Final = 8
"""Requests of one client handled before the next client's turn: half a millisecond of lookups."""
BYTES_A_TURN: Final = 64 * 1024
"""The same for large ones."""
HELLO_WITHIN_S: Final = 10.0
"""A connection that has not said HELLO by then is closed, so that idle ones cannot use up
SESSIONS_MAX."""
FRAME_WITHIN_S: Final = 5.0
"""A frame that was begun and is not whole by then ends its stream: what it holds is bounded for all
clients together, and others wait for it. A whole one takes a millisecond to arrive."""


class Connection:
    """One client. Its session lives in the engine until the *client's* side of the stream ends.

    The client's end is its word that no page of the session is touched any more. So when the agent
    has had enough of a client it closes its own side only and waits: what the session holds is
    given to nobody while a copy of that client's may still be running.
    """

    def __init__(self, server: "Server", session: int, sock: socket.socket, now_s: float) -> None:
        self.session = session
        self.room_bytes = 0
        """What was granted to it for a frame larger than READ_BYTES."""
        self.wants_room = False
        """Not read from until it gets some."""
        self._server = server
        self._shell = server.shell
        self._tally = server.tally
        self._socket = sock
        self._number = sock.fileno()
        self._cutter = Cutter()
        self._batch: list[bytes] | None = None
        self._unsent = bytearray()
        self._behind = False
        self._closing = False
        self._parted = False
        self._unheard = False
        self._greeted = False
        self._since_s = now_s
        server.plane.watch(self._number, select.EPOLLIN, self.ready)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    # ---- reading

    def ready(self, mask: int) -> None:
        """The kernel has something for this connection."""
        if mask & select.EPOLLOUT:
            self._send_rest()
        if mask & ~select.EPOLLOUT and self._number >= 0 and not self._behind:
            self._receive()

    def _receive(self) -> None:
        buffer = self._server.buffer
        try:
            size = self._socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._gone()
        elif not self._closing:
            self._cutter.add(bytes(buffer[:size]))
            self.work()

    def work(self) -> None:
        """Handle a turn's worth of the frames that were read; those behind it in the next one."""
        self._behind = False
        if self._closing:
            return
        self._batch = None  # the first answer leaves at once, somebody waits for it
        frames = taken = 0
        try:
            while (got := self._cutter.next()) is not None:
                if self.room_bytes:
                    self._server.return_room(self)
                self._request(got)
                if self._ended():
                    break
                if self._batch is None:
                    self._batch = []
                frames += 1
                taken += len(got.payload)
                if frames == FRAMES_A_TURN or taken >= BYTES_A_TURN:
                    self._behind = True
                    break
        except WireError as wrong:  # the cutter's: a frame that is too large to await
            self.refuse(0, 0, wrong.status, wrong.sentence)
            self.close_after_sending()
        batch, self._batch = self._batch, None
        if batch:
            self._write(b"".join(batch) if len(batch) > 1 else batch[0])
        if self._ended():
            self._behind = False
            self._part()
        elif self._behind:
            self._server.plane.again(self.work)
        elif self._cutter.waiting:
            self._await_frame(begun=bool(frames))
        elif self._greeted:
            self._since_s = 0.0

    def _await_frame(self, *, begun: bool) -> None:
        """Bound what an unfinished frame may hold, and for how long. begun: it is a new one."""
        nbytes = self._cutter.awaited_bytes
        if not self._greeted:
            if nbytes > READ_BYTES:
                self.refuse(0, 0, Status.HELLO_FIRST, f"a frame of {nbytes} bytes before HELLO")
                self.close_after_sending()
            return
        if begun or not self._since_s:
            self._since_s = self._server.clock()
        if nbytes > READ_BYTES and not self.room_bytes and not self.wants_room:
            self.wants_room = True
            self._listen()
            self._server.ask_room(self, nbytes)

    def room_came(self) -> None:
        """It may read on."""
        self.wants_room = False
        self._since_s = self._server.clock()
        self._listen()

    def look_at_clock(self, now_s: float) -> None:
        """End what has taken too long."""
        if self._closing or not self._since_s or self.wants_room or self._behind:
            return
        if not self._greeted and now_s - self._since_s > HELLO_WITHIN_S:
            self.refuse(0, 0, Status.HELLO_FIRST, f"no HELLO within {HELLO_WITHIN_S:g} s")
            self.close_after_sending()
        elif self._greeted and now_s - self._since_s > FRAME_WITHIN_S:
            said = f"a frame was begun and not finished within {FRAME_WITHIN_S:g} s"
            self.refuse(0, 0, Status.BAD_FRAME, said)
            self.close_after_sending()

    def _request(self, got: Frame) -> None:
        timed = self._tally.begin(got.op)
        try:
            request = decode_request(got.op, got.payload)
        except WireError as wrong:
            self.refuse(got.op, got.request_id, wrong.status, wrong.sentence)
            if wrong.status in FATAL or not self._greeted:
                self.close_after_sending()
            return
        if not self._greeted:
            if got.op != Op.HELLO:
                said = f"{Op(got.op).name} before HELLO"
                self.refuse(got.op, got.request_id, Status.HELLO_FIRST, said)
                self.close_after_sending()
                return
            self._greeted = True
            self._since_s = 0.0
        self._shell.ask(Asked(self.session, got.request_id, request))
        if timed is not None:
            self._tally.end(timed)

    def _ended(self) -> bool:
        """Whether the stream is to be closed: nothing more is read from it."""
        return self._closing

    # ---- sending

    def send(self, raw: bytes) -> None:
        """Send a frame; the later ones of a turn leave in one write. Nothing goes to a client that
        was parted from."""
        if self._batch is not None:
            self._batch.append(raw)
        elif not self._closing:
            self._write(raw)

    def refuse(self, op: int, request_id: int, status: Status, sentence: str) -> None:
        self._server.refusals.count(op, status, sentence, session=self.session)
        self.send(refusal(op, status, request_id, sentence))

    def _write(self, raw: bytes) -> None:
        if self._parted or self._unheard:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(raw)
            except BlockingIOError:
                pass
            except OSError:
                self._nobody_reads()
                return
        if sent < len(raw):
            self._unsent += memoryview(raw)[sent:]
            self._listen()
            self._server.held_back(self, len(raw) - sent)

    def _send_rest(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._nobody_reads()
            return
        del self._unsent[:sent]
        self._server.sent(sent)
        if not self._unsent:
            self._listen()
            if self._closing:
                self._part()

    def _nobody_reads(self) -> None:
        """The client has closed. What it sent before is still done: it may have sealed a store."""
        self._unheard = True
        self._server.sent(len(self._unsent))
        self._unsent = bytearray()
        self._listen()

    def _listen(self) -> None:
        """Tell the plane what this connection waits for."""
        mask = 0 if self.wants_room else select.EPOLLIN
        if self._unsent:
            mask |= select.EPOLLOUT
        self._server.plane.watch(self._number, mask, self.ready)

    # ---- ending

    def close_after_sending(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._batch is None:
            self._part()

    def linger(self) -> None:
        """Drop what is queued and close our side now; the end of the client's is waited for."""
        self._closing = True
        self._server.sent(len(self._unsent))
        self._unsent = bytearray()
        self._part()

    def end(self) -> None:
        """Close both sides: the agent ends, and its arena with it."""
        self._closing = True
        if self._number >= 0:
            self._gone()

    def _part(self) -> None:
        """Close our side once what is queued was sent. A client that never said HELLO holds
        nothing, so nothing need be waited for."""
        if self._unsent or self._parted or self._number < 0:
            return
        self._parted = True
        self._cutter = Cutter()
        self.wants_room = False
        self._server.return_room(self)
        if not self._greeted:
            self._gone()
            return
        self._listen()
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._gone()  # there is no other side any more

    def _gone(self) -> None:
        """The client's side has ended: what it held is free."""
        self._closing = self._parted = True
        self._server.plane.forget(self._number)
        self._number = -1
        self._server.return_room(self)
        self._server.sent(len(self._unsent))
        self._unsent = bytearray()
        self._socket.close()
        self._server.gone(self.session)
