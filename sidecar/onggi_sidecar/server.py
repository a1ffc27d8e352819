"""The unix socket: clients come, one connection each, and what they may hold is bounded.

A client can make the agent hold its frame (wire limits), its tickets (engine), its unsent replies
and its connection; the sums over all clients are bounded here too.
"""

import errno
import itertools
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from onggi_core.engine.actions import Refuse
from onggi_core.engine.events import SessionClosed, SessionOpened
from onggi_core.wire.frame import Op, Status
from onggi_sidecar.connection import READ_BYTES, Connection
from onggi_sidecar.log import warn
from onggi_sidecar.plane import Plane
from onggi_sidecar.refusals import Refusals
from onggi_sidecar.shell import Shell
from onggi_sidecar.tally import Tally

SESSIONS_MAX: Final = 256
"""Connections at once: a pod has one engine of some ranks and processes; each costs about 2 KiB,
and 256 idle ones do not crowd out descriptors for the disk tier."""
UNSENT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Replies a client has not read: four of the largest. A client further behind is not reading."""
ALL_UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same over all clients; past it the one that is furthest behind is dropped."""
ROOM_BYTES_MAX: Final = 8 * 1024 * 1024
"""Unfinished frames larger than READ_BYTES, over all clients: four of the largest at a time. Others
are read when one of these is whole or its time is over. With READ_BYTES of every client 24 MiB."""
ACCEPTED_A_TURN: Final = 16
REST_S: Final = 1.0
"""After there was no descriptor for one more client, how long nobody is accepted."""

_OUT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What accept() says when there is no descriptor or memory for one more client."""


class Server:
    """Accepts clients on a listening socket until close(). All of it runs on the plane."""

    def __init__(
        self, shell: Shell, tally: Tally, plane: Plane, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.shell = shell
        self.tally = tally
        self.plane = plane
        self.clock = clock
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.refusals = Refusals(tally, clock)
        shell.refused = self._refused
        self._sessions = itertools.count(1)
        self._connections: dict[int, Connection] = {}
        self._listening: socket.socket | None = None
        self._rests_until_s = 0.0
        self._unsent_bytes = 0
        self._room_bytes = ROOM_BYTES_MAX
        self._want_room: dict[Connection, int] = {}

    def start(self, listening: socket.socket) -> None:
        self._listening = listening
        self.plane.watch(listening.fileno(), select.EPOLLIN, self._accept)

    @property
    def listening(self) -> bool:
        return self._listening is not None

    def close(self) -> None:
        """Accept nobody new."""
        if self._listening is not None:
            self.plane.forget(self._listening.fileno())
            self._listening.close()
            self._listening = None

    def close_clients(self) -> None:
        """End every stream."""
        for connection in list(self._connections.values()):
            connection.end()

    def tick(self) -> None:
        now_s = self.clock()
        if self._rests_until_s and now_s >= self._rests_until_s and self._listening is not None:
            self._rests_until_s = 0.0
            self.plane.watch(self._listening.fileno(), select.EPOLLIN, self._accept)
        for connection in list(self._connections.values()):
            connection.look_at_clock(now_s)

    def _accept(self, _mask: int) -> None:
        assert self._listening is not None
        for _ in range(ACCEPTED_A_TURN):
            try:
                sock, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as fault:
                if fault.errno not in _OUT_OF_ROOM:
                    raise
                self._rest(fault)
                return
            sock.settimeout(0)
            self._welcome(sock)

    def _rest(self, fault: OSError) -> None:
        assert self._listening is not None
        self._rests_until_s = self.clock() + REST_S
        self.plane.forget(self._listening.fileno())
        self.tally.fault("out_of_descriptors")
        if self.tally.faults["out_of_descriptors"] == 1:  # one each second says no more
            warn("accept_failed", f"cannot take one more connection: {fault.strerror}")

    def _welcome(self, sock: socket.socket) -> None:
        session = next(self._sessions)
        connection = Connection(self, session, sock, self.clock())
        self._connections[session] = self.shell.peers[session] = connection
        self.shell.step(SessionOpened(session))
        if len(self._connections) > SESSIONS_MAX:
            said = f"{SESSIONS_MAX} clients are connected; close one"
            connection.refuse(0, 0, Status.TOO_MANY, said)
            connection.close_after_sending()

    def gone(self, session: int) -> None:
        """The client's side of its stream has ended."""
        del self._connections[session]
        del self.shell.peers[session]
        self.shell.step(SessionClosed(session))

    def _refused(self, by_engine: Refuse) -> None:
        """Of requests the engine refuses some are late and no fault, but a HELLO is a client."""
        if by_engine.op == Op.HELLO:
            said = by_engine.sentence
            self.refusals.count(by_engine.op, by_engine.status, said, session=by_engine.session)

    # ---- what all clients may hold together

    def held_back(self, connection: Connection, nbytes: int) -> None:
        """Replies that a client has not read yet."""
        self._unsent_bytes += nbytes
        if connection.unsent_bytes > UNSENT_BYTES_MAX:
            self._drop(connection)
        elif self._unsent_bytes > ALL_UNSENT_BYTES_MAX:
            self._drop(max(self._connections.values(), key=lambda one: one.unsent_bytes))

    def _drop(self, slow: Connection) -> None:
        self.tally.fault("slow_client")
        warn(
            "client_dropped",
            "a client does not read its replies and was dropped",
            session=slow.session,
            unsent_bytes=slow.unsent_bytes,
        )
        slow.linger()

    def sent(self, nbytes: int) -> None:
        self._unsent_bytes -= nbytes

    def ask_room(self, connection: Connection, nbytes: int) -> None:
        """Room for a large frame; `connection.room_came` is called when it is there."""
        self._want_room[connection] = nbytes
        self._give_room()

    def return_room(self, connection: Connection) -> None:
        """What it was given is free, and it waits for none any more."""
        self._want_room.pop(connection, None)
        self._room_bytes += connection.room_bytes
        connection.room_bytes = 0
        self._give_room()

    def _give_room(self) -> None:
        """In the order of asking."""
        while self._want_room:
            connection, nbytes = next(iter(self._want_room.items()))
            if nbytes > self._room_bytes:
                return
            del self._want_room[connection]
            self._room_bytes -= nbytes
            connection.room_bytes = nbytes
            connection.room_came()
