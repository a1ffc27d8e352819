"""One connection to an agent: frames out, replies in, many calls in flight, no thread of its own.

Leader and followers: of the callers that wait, one (the leader) reads the socket and hands every
reply to the call it belongs to; the others sleep until theirs is there or the leader steps down.
A lone caller, which is the common case, pays two system calls and no wake-up of another thread.

A call whose caller gave up stays known until its reply comes, so that a late reply is recognised by
its id and can give back what it brings (a pin, a reservation).
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

from onggi.clock import Clock, monotonic
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import WireError, frame

IN_FLIGHT_MAX: Final = 4096
"""Calls awaiting a reply, given-up ones included. An agent that owes more has stopped answering;
with the largest payload they would hold 8 GiB, in practice 2 KiB each: 8 MiB."""

_READ_BYTES: Final = 64 * 1024
"""Read at once, into a buffer of the channel's own: recv() of a new object of 256 KiB took 17 us of
a 60 us round trip, in mapping and unmapping it."""


_LOOK_S: Final = 0.05
"""How often a leader looks whether the connection was given up: one that may not be shut yet, since
pages of it are in use, cannot wake it."""


class ChannelClosed(Exception):
    """The connection is gone; every call on it gets this. The message says why."""


class Call:
    """One request in flight. `frame` is its reply once that is there."""

    __slots__ = ("frame", "late", "op", "request_id")

    def __init__(self, request_id: int, op: int) -> None:
        self.request_id = request_id
        self.op = op
        self.frame: Frame | None = None
        self.late: Callable[[Frame], None] | None = None


class Channel:
    """A connected unix stream socket. Thread-safe. Deadlines are points on `clock`."""

    def __init__(self, sock: socket.socket, *, clock: Clock = monotonic) -> None:
        sock.settimeout(0.0)
        self._sock = sock
        self._clock = clock
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._send_lock = threading.Lock()
        self._turn = threading.Condition()
        self._leading = False
        self._followers = 0
        self._cutter = Cutter()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._calls: dict[int, Call] = {}
        self._next_id = 1
        self._closed_because = ""
        self._shut = False
        self.may_shut: Callable[[], bool] = lambda: True
        """Whether nobody touches a page that the end of the stream would free."""

    @property
    def closed(self) -> bool:
        return bool(self._closed_because)

    @property
    def in_flight(self) -> int:
        """Calls without a reply, given-up ones included."""
        return len(self._calls)

    @property
    def shut(self) -> bool:
        """Whether the agent was told of the end: closed, and nothing of it in use any more."""
        return self._shut

    @property
    def hung_up(self) -> bool:
        """Whether the stream has ended on either side, looked at now and not at the last read."""
        number = self._sock.fileno()
        if self._closed_because or number < 0:
            return True
        looking = select.poll()  # one of its own: no two threads may wait on one
        looking.register(number, select.POLLRDHUP)
        return bool(looking.poll(0))

    def close(self, because: str) -> None:
        """End the connection; waiting callers get ChannelClosed. The agent drops what we held, so
        it hears of it only when `may_shut`: at once, or by shut_if_free() later."""
        with self._turn:
            if self._closed_because:
                return
            self._closed_because = because
            self._calls.clear()
            self._turn.notify_all()
        self.shut_if_free()

    def shut_if_free(self) -> None:
        """Tell the agent of an end that had to wait for pages in use."""
        if not self._closed_because or not self.may_shut():
            return
        with self._turn:
            shut, self._shut = self._shut, True
        if shut:
            return
        with contextlib.suppress(OSError):  # the agent may have been faster
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a leader that sleeps in poll
        self._sock.close()

    def let_go(self) -> None:
        """In a forked child: drop our descriptor and leave the parent's connection as it is."""
        self._closed_because = "forked"
        self._shut = True
        self._sock.close()

    def start(self, op: int, payload: bytes, deadline_s: float) -> Call:
        """Send a request. Raises ChannelClosed; a send that cannot end in time closes, since half
        a frame on the stream is the end of it."""
        with self._turn:
            self._raise_if_closed()
            if len(self._calls) >= IN_FLIGHT_MAX:
                too_many = f"the agent owes {IN_FLIGHT_MAX} replies"
            else:
                too_many = ""
                call = Call(self._next_id, op)
                self._next_id += 1
                self._calls[call.request_id] = call
        if too_many:
            self.close(too_many)
            raise ChannelClosed(too_many)
        self._send(frame(op, 0, call.request_id, payload), deadline_s)
        return call

    def wait(self, call: Call, deadline_s: float) -> Frame | None:
        """The reply, or None when the deadline has come first. Raises ChannelClosed."""
        while call.frame is None:
            if not self._lead_or_follow(call, deadline_s):
                return call.frame
        return call.frame

    def poll(self, call: Call) -> Frame | None:
        """The reply if it is there already. Raises ChannelClosed."""
        return self.wait(call, 0.0)

    def give_up(self, call: Call, late: Callable[[Frame], None] | None = None) -> None:
        """Wait no longer. `late` is called with the reply if one comes after all."""
        with self._turn:
            call.late = late
            came = call.frame
        if came is not None and late is not None:
            late(came)

    def drain(self) -> None:
        """Take in what is there, for nobody in particular. Raises ChannelClosed."""
        self.wait(Call(0, 0), 0.0)

    # ---- sending

    def _send(self, data: bytes, deadline_s: float) -> None:
        with self._send_lock:
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._sock.send(rest) :]
                except BlockingIOError:
                    self._await_room(deadline_s)
                except OSError as error:
                    self._fail(f"sending failed: {error.strerror or error}", error)

    def _await_room(self, deadline_s: float) -> None:
        left_s = deadline_s - self._clock()
        if left_s <= 0 or not self._writable.poll(_ms(left_s)):
            self._fail("the agent does not take in what it is sent", None)

    # ---- reading

    def _lead_or_follow(self, call: Call, deadline_s: float) -> bool:
        """One turn of waiting. False: the time is over."""
        with self._turn:
            if call.frame is not None:
                return True
            self._raise_if_closed()
            if self._leading:
                left_s = deadline_s - self._clock()
                if left_s <= 0:
                    return False
                self._followers += 1
                self._turn.wait(left_s)
                self._followers -= 1
                return True
            self._leading = True
        try:
            return self._lead(call, deadline_s)
        finally:
            with self._turn:
                self._leading = False
                if self._followers:
                    self._turn.notify_all()

    def _lead(self, call: Call, deadline_s: float) -> bool:
        while call.frame is None:
            left_s = deadline_s - self._clock()
            if not self._readable.poll(_ms(min(left_s, _LOOK_S)) if left_s > 0 else 0):
                if left_s <= 0 or self._closed_because:
                    return bool(self._closed_because)
                continue
            self._read()
            if self._closed_because:
                return True
            if call.request_id == 0 or left_s <= 0:
                return False
        return True

    def _read(self) -> None:
        try:
            size = self._sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"reading failed: {error.strerror or error}", error)
        if not size:
            self._fail("the agent closed the connection", None)
        try:
            frames = self._cutter.feed(bytes(self._buffer[:size]))
        except WireError as error:
            self._fail(error.sentence, error)
        for one in frames:
            self._hand_over(one)

    def _hand_over(self, one: Frame) -> None:
        with self._turn:
            call = self._calls.pop(one.request_id, None)
            if call is None:
                return  # an id we never used, or of a call made before a close
            call.frame = one
            late = call.late
            if self._followers:
                self._turn.notify_all()
        if late is not None:
            late(one)

    def _fail(self, because: str, cause: Exception | None) -> None:
        self.close(because)
        raise ChannelClosed(self._closed_because or because) from cause

    def _raise_if_closed(self) -> None:
        if self._closed_because:
            raise ChannelClosed(self._closed_because)


def _ms(left_s: float) -> float:
    """poll() counts in milliseconds and takes fractions up to the next one."""
    return left_s * 1000.0
