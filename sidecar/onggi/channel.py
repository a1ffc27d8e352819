"""One connection to an agent: frames out, replies in, many calls in flight, no thread of its own.

Leader and followers: of the callers that wait, one (the leader) reads the socket and hands every
reply to the call it belongs to; the others sleep until theirs is there or the leader steps down.
A lone caller, which is the common case, pays two system calls and no wake-up of another thread.

A call whose caller gave up stays known until its reply comes, and can give back what that brings.
A refusal that answers no call says why the agent ends the stream: whatever fails then, that is why.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from onggi.call import Call, sentence
from onggi.clock import Clock, monotonic
from onggi_core.wire.cut import Cutter, Frame
from onggi_core.wire.frame import Status, WireError, frame

IN_FLIGHT_MAX: Final = 4096
"""Calls awaiting a reply, given-up ones included. An agent that owes more has stopped answering;
with the largest payload they would hold 8 GiB, in practice 2 KiB each: 8 MiB."""

_READ_BYTES: Final = 64 * 1024
"""Read at once, into a buffer of the channel's own: a new one costs 17 us of a 60 us round trip."""

_LOOK_S: Final = 0.02
"""How often a leader looks whether the connection was given up: one that may not be shut yet, since
pages of it are in use, cannot wake it. While more time than this is left the leader sleeps in recv
itself, which saves a system call; the socket has it as its own timeout."""


class ChannelClosed(Exception):
    """The connection is gone; every call on it gets this. The message says why."""


class Channel:
    """A connected unix stream socket. Thread-safe. Deadlines are points on `clock`.

    A lone caller takes three locks that nobody else wants, and makes two system calls: send and
    recv. What is a plain attribute or one dictionary call here is atomic under the GIL.
    """

    def __init__(self, sock: socket.socket, *, clock: Clock = monotonic) -> None:
        sock.settimeout(None)
        look = struct.pack("ll", 0, round(_LOOK_S * 1e6))  # seconds and microseconds
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, look)
        self._sock = sock
        self._clock = clock
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._ended = select.poll()
        self._ended.register(sock, select.POLLRDHUP)
        self._look_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._leading = threading.Lock()
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._followers = 0
        self._cutter = Cutter()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count(1)
        self._closed_because = self._last_words = ""
        self._ending = False
        """Nothing can be sent any more, so nothing is given back."""
        self.closed = False
        self.shut = False
        """Whether the agent was told of the end: closed, and nothing of it in use any more."""
        self.may_shut: Callable[[], bool] = lambda: True
        """Whether nobody touches a page that the end of the stream would free."""

    @property
    def in_flight(self) -> int:
        """Calls without a reply, given-up ones included."""
        return len(self._calls)

    @property
    def hung_up(self) -> bool:
        """Whether the stream has ended on either side, looked at now and not at the last read."""
        number = self._sock.fileno()
        if self.closed or number < 0:
            return True
        with self._look_lock:  # no two threads may wait on one
            return bool(self._ended.poll(0))

    def close(self, because: str) -> None:
        """End the connection; waiting callers get ChannelClosed. The agent drops what we held, so
        it hears of it only when `may_shut`: at once, or by shut_if_free() later."""
        with self._lock:
            if self.closed:
                return
            self._closed_because = because
            self.closed = True
            self._calls.clear()
            self._turn.notify_all()
        self.shut_if_free()

    def shut_if_free(self) -> None:
        """Tell the agent of an end that had to wait for pages in use."""
        if not self.closed or not self.may_shut():
            return
        with self._lock:
            shut, self.shut = self.shut, True
        if shut:
            return
        with contextlib.suppress(OSError):  # the agent may have been faster
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a leader that sleeps in recv
        self._sock.close()

    def let_go(self) -> None:
        """In a forked child: drop our descriptor and leave the parent's connection as it is."""
        self._closed_because = "forked"
        self.closed = self.shut = True
        self._sock.close()

    def start(
        self,
        op: int,
        payload: bytes,
        deadline_s: float,
        late: Callable[[Frame], None] | None = None,
    ) -> Call:
        """Send a request. Raises ChannelClosed; a send that cannot end in time closes, since half
        a frame on the stream is the end of it. late: gets the reply where nobody waits for it."""
        if self.closed:
            raise ChannelClosed(self._closed_because)
        if len(self._calls) >= IN_FLIGHT_MAX:
            self._fail(f"the agent owes {IN_FLIGHT_MAX} replies", None)
        call = self.expect(op)
        call.late = late
        self.send(frame(op, 0, call.request_id, payload), deadline_s)
        return call

    def expect(self, op: int) -> Call:
        """A request that the caller sends himself, in a frame with its number."""
        call = Call(next(self._numbers), op)
        self._calls[call.request_id] = call
        return call

    def forget(self, call: Call) -> None:
        """It was not sent after all."""
        self._calls.pop(call.request_id, None)

    def wait(self, call: Call, deadline_s: float) -> Frame | None:
        """The reply, or None when the deadline has come first. Raises ChannelClosed."""
        while call.frame is None:
            if not self._lead_or_follow(call, deadline_s):
                return call.frame
        return call.frame

    def give_up(self, call: Call, late: Callable[[Frame], None] | None = None) -> None:
        """Wait no longer. `late` is called with the reply if one comes after all."""
        with self._lock:
            call.late = late
            came = call.frame
        if came is not None and late is not None:
            late(came)

    def drain(self) -> None:
        """Take in what is there, for nobody in particular. Raises ChannelClosed."""
        self.wait(Call(0, 0), 0.0)

    # ---- sending

    def send(self, data: bytes, deadline_s: float) -> None:
        """A whole frame. Raises as start() does."""
        try:
            with self._send_lock:
                try:
                    sent = self._sock.send(data, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    sent = 0
                if sent < len(data):
                    self._send_rest(memoryview(data)[sent:], deadline_s)
        except OSError as error:
            self._sending_failed(error)

    def _send_rest(self, rest: memoryview, deadline_s: float) -> None:
        while rest:
            left_s = deadline_s - self._clock()
            if left_s <= 0 or not self._writable.poll(left_s * 1000):
                self._fail("the agent does not take in what it is sent", None)
            try:
                rest = rest[self._sock.send(rest, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue

    def _sending_failed(self, error: OSError) -> NoReturn:
        """What the agent said before it closed can still be read; who leads reads it himself."""
        if self._leading.acquire(timeout=_LOOK_S):
            self._ending = True
            try:
                self._read_last(Call(-1, 0))
            finally:
                self._leading.release()
        self._fail(f"sending failed: {error.strerror or error}", error)

    # ---- reading

    def _lead_or_follow(self, call: Call, deadline_s: float) -> bool:
        """One turn of waiting. False: the time is over."""
        if self.closed:
            raise ChannelClosed(self._closed_because)
        if not self._leading.acquire(blocking=False) and not self._follow(call, deadline_s):
            return call.frame is not None or self._clock() < deadline_s
        try:
            return self._lead(call, deadline_s)
        finally:
            self._leading.release()
            if self._followers:
                with self._lock:
                    self._turn.notify_all()

    def _follow(self, call: Call, deadline_s: float) -> bool:
        """Sleep until something has changed. True: this caller leads now.

        Whoever steps down lets go of the lead first and looks for followers then, and whoever
        follows says so first and tries for the lead then: one of the two sees the other.
        """
        with self._lock:
            self._followers += 1
            try:
                if call.frame is not None or self.closed:
                    return False
                if self._leading.acquire(blocking=False):
                    return True
                left_s = deadline_s - self._clock()
                if left_s > 0:
                    self._turn.wait(left_s)
                return False
            finally:
                self._followers -= 1

    def _lead(self, call: Call, deadline_s: float) -> bool:
        while call.frame is None:
            left_s = deadline_s - self._clock()
            if left_s > _LOOK_S:
                self._read(0)
            elif left_s <= 0:
                return self._read_last(call)
            elif self._readable.poll(left_s * 1000):
                self._read(socket.MSG_DONTWAIT)
            if self.closed:
                return True
        return True

    def _read_last(self, call: Call) -> bool:
        """What lies there, until the call's reply; who sends on and on is not read for ever."""
        until_s = self._clock() + _LOOK_S if call.request_id else 0.0  # 0: drain() awaits nothing
        while self._read(socket.MSG_DONTWAIT) and call.frame is None and self._clock() < until_s:
            pass
        return call.frame is not None

    def _read(self, flags: int) -> bool:
        """Take in what is there, or comes within _LOOK_S. False: nothing."""
        try:
            size = self._sock.recv_into(self._buffer, 0, flags)
        except BlockingIOError:
            return False
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
        return True

    def _hand_over(self, one: Frame) -> None:
        with self._lock:
            call = self._calls.pop(one.request_id, None)
            if call is None:  # an id we never used, or of a call made before a close
                if one.request_id == 0 and one.status != Status.OK:
                    self._last_words = sentence(one)
                return
            call.frame = one
            late = call.late
            if self._followers:
                self._turn.notify_all()
        if late is not None and not self._ending:
            late(one)

    def _fail(self, because: str, cause: Exception | None) -> NoReturn:
        if self._last_words:
            because = f"the agent closed the connection: {self._last_words}"
        self.close(because)
        raise ChannelClosed(self._closed_because or because) from cause
