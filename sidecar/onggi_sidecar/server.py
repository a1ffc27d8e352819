"""The unix socket: frames in, frames out, one connection a client.

A plain asyncio Protocol and not streams: a lookup is answered inside buffer_updated, without a task
switch, and read into one buffer that all connections share, since asyncio's own way allocates
256 KiB for each read. What a client can make the agent hold is bounded: its frame (wire limits),
its tickets (engine), its unsent replies and its number of connections (here).
"""

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from typing import Final

from onggi_core.engine.events import Asked, SessionClosed, SessionOpened
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import FATAL, Op, Status, WireError, refusal
from onggi_core.wire.requests import decode_request
from onggi_sidecar.log import warn
from onggi_sidecar.shell import Shell
from onggi_sidecar.socketfile import BACKLOG
from onggi_sidecar.tally import Tally

SESSIONS_MAX: Final = 256
"""Connections at once: a pod has one engine of some ranks and processes; each costs about 10 KiB,
and 256 idle ones do not crowd out descriptors for the disk tier."""
UNSENT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Replies a client has not read: four of the largest. A client further behind is not reading."""
READ_BYTES: Final = 256 * 1024
"""Most bytes taken from one client at a time, so that a large request lets others in between."""
HELLO_WITHIN_S: Final = 10.0
"""A connection that has not said HELLO by then is closed, so that idle ones cannot use up
SESSIONS_MAX."""


class Connection(asyncio.BufferedProtocol):
    """One client. Its session lives in the engine until the *client's* side of the stream ends.

    The client's end is its word that no page of the session is touched any more. So when the agent
    has had enough of a client it closes its own side only and waits: what the session holds is
    given to nobody while a copy of that client's may still be running.
    """

    def __init__(self, server: "Server", session: int) -> None:
        self.session = session
        self._server = server
        self._shell = server.shell
        self._tally = server.tally
        self._cutter = Cutter()
        self._transport: asyncio.Transport
        self._batch: list[bytes] | None = None
        self._closing = False
        self._greeted = False
        self._hello_timer: asyncio.TimerHandle
        self._lingering: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._hello_timer = asyncio.get_running_loop().call_later(HELLO_WITHIN_S, self._no_hello)
        self._shell.peers[self.session] = self
        self._shell.step(SessionOpened(self.session))
        if len(self._shell.peers) > SESSIONS_MAX:
            self._refuse(0, 0, Status.TOO_MANY, f"{SESSIONS_MAX} clients are connected; close one")
            self.close_after_sending()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # a read takes what is there; the buffer is used up before the next one
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended():
            return
        self._batch = []
        try:
            for got in self._cutter.feed(bytes(self._server.buffer[:nbytes])):
                self._request(got)
                if self._ended():
                    break
        except WireError as wrong:  # the cutter's: a frame that is too large to await
            self._refuse(0, 0, wrong.status, wrong.sentence)
            self.close_after_sending()
        batch, self._batch = self._batch, None
        if batch:
            self._transport.write(b"".join(batch))
        if self._ended():
            self._part()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # however the stream ended, what the client held is free now
        self._hello_timer.cancel()
        if self._lingering is None:
            self._gone()

    def _gone(self) -> None:
        del self._shell.peers[self.session]
        self._shell.step(SessionClosed(self.session))

    def pause_writing(self) -> None:
        self._tally.fault("slow_client")
        warn(
            "client_dropped",
            "a client does not read its replies and was dropped",
            session=self.session,
            unsent_bytes=self._transport.get_write_buffer_size(),
        )
        self._linger()

    def send(self, raw: bytes) -> None:
        """Queue a frame; those of one read leave in one write. Nothing goes to a client that was
        parted from."""
        if self._batch is not None:
            self._batch.append(raw)
        elif not self._closing:
            self._transport.write(raw)

    def close_after_sending(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._batch is None:
            self._part()

    def end(self) -> None:
        """Close both sides: the agent ends, and its arena with it."""
        self._closing = True
        self._transport.close()
        if self._lingering is not None:
            self._stop_lingering()

    def _part(self) -> None:
        """Close our side once what is queued was sent. A client that never said HELLO holds
        nothing, so nothing need be waited for."""
        if self._greeted:
            self._transport.write_eof()
        else:
            self._transport.close()

    def _linger(self) -> None:
        """Drop what is queued and close our side now; a descriptor of our own hears the end of the
        client's."""
        self._closing = True
        theirs: socket.socket = self._transport.get_extra_info("socket")
        self._lingering = socket.socket(fileno=os.dup(theirs.fileno()))
        self._lingering.settimeout(0)
        self._transport.abort()
        with contextlib.suppress(OSError):  # the client may have gone meanwhile
            self._lingering.shutdown(socket.SHUT_WR)
        asyncio.get_running_loop().add_reader(self._lingering, self._read_on)

    def _read_on(self) -> None:
        assert self._lingering is not None
        try:
            over = not self._lingering.recv_into(self._server.buffer)
        except BlockingIOError:
            return
        except OSError:
            over = True
        if over:
            self._stop_lingering()

    def _stop_lingering(self) -> None:
        assert self._lingering is not None
        asyncio.get_running_loop().remove_reader(self._lingering)
        self._lingering.close()
        self._gone()

    def _request(self, got: Frame) -> None:
        timed = self._tally.begin(got.op)
        try:
            request = decode_request(got.op, got.payload)
        except WireError as wrong:
            self._refuse(got.op, got.request_id, wrong.status, wrong.sentence)
            if wrong.status in FATAL or not self._greeted:
                self.close_after_sending()
            return
        if not self._greeted:
            if got.op == Op.HELLO:
                self._greeted = True
                self._hello_timer.cancel()
            else:
                self._refuse(
                    got.op, got.request_id, Status.HELLO_FIRST, f"{Op(got.op).name} before HELLO"
                )
                self.close_after_sending()
                return
        self._shell.ask(Asked(self.session, got.request_id, request))
        if timed is not None:
            self._tally.end(timed)

    def _ended(self) -> bool:
        """Whether the stream is to be closed: nothing more is read from it."""
        return self._closing

    def _refuse(self, op: int, request_id: int, status: Status, sentence: str) -> None:
        self._tally.fault("bad_frame" if status in FATAL else "bad_request")
        warn("client_refused", sentence, session=self.session, status=status.name)
        self.send(refusal(op, status, request_id, sentence))

    def _no_hello(self) -> None:
        self._refuse(0, 0, Status.HELLO_FIRST, f"no HELLO within {HELLO_WITHIN_S:g} s")
        self.close_after_sending()


class Server:
    """Accepts clients on a listening socket until close()."""

    def __init__(self, shell: Shell, tally: Tally) -> None:
        self.shell = shell
        self.tally = tally
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._sessions = itertools.count(1)
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        make: Callable[[], Connection] = lambda: Connection(self, next(self._sessions))  # noqa: E731
        self._server = await loop.create_unix_server(make, sock=listening, backlog=BACKLOG)

    @property
    def listening(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def close(self) -> None:
        """Accept nobody new."""
        if self._server is not None:
            self._server.close()

    def close_clients(self) -> None:
        """Send what is queued and end every stream."""
        for peer in list(self.shell.peers.values()):
            peer.end()
