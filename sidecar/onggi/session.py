"""Attaching: connect, say what we store, map the arena, check that it is the one announced."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from typing import Final

from onggi import advice
from onggi.arena import Arena, ArenaRefused
from onggi.board import Shown, shown_to
from onggi.call import sentence
from onggi.channel import Channel, ChannelClosed
from onggi.clock import Clock
from onggi_core.wire.frame import Op, Status, WireError
from onggi_core.wire.replies import Welcome, decode_reply
from onggi_core.wire.requests import Hello

ATTACH_DEADLINE_S: Final = 0.1
"""For connecting, HELLO and mapping; it takes some 0.3 ms. With the longest back-off of 5 s, a hung
agent costs an engine 2 % of its time at most."""

LEASE_USED: Final = 0.75
"""Part of a lease in which pages are touched. The rest is for a process that is held up between
looking at the clock and copying its last byte."""

_numbers = itertools.count(1)


class AttachFailed(Exception):
    """No session came about; the message is a sentence that says why."""


class Session:
    """One attachment. number: unique in this process, so that a ticket of another session is told
    from one of this.

    The agent takes the end of the stream as our word that no page of this session is touched any
    more. So while a ticket is held (a copy may be running, in this process or in a worker that was
    told the pages) our side does not close, whatever it thinks of the agent.
    """

    def __init__(
        self, channel: Channel, welcome: Welcome, arena: Arena, shown: Shown | None
    ) -> None:
        self.number = next(_numbers)
        self.channel = channel
        self.welcome = welcome
        self.arena = arena
        self.epoch = welcome.epoch
        self.shown = shown
        """What can be loaded without asking; None: nothing."""
        self.lease_s = welcome.lease_ms / 1000.0 * LEASE_USED
        """How long after a request was sent the pages it names may be touched."""
        self._lock = threading.Lock()
        self._holds = 0
        self._ending = False
        self._close_because = ""
        channel.may_shut = self._free
        arena.when_idle = channel.shut_if_free

    def _free(self) -> bool:
        return (self._ending or self._holds <= 0) and not self.arena.in_use

    def end(self, because: str, wait_s: float) -> None:
        """Close whatever tickets are held, but not under a copy that runs in this process: no new
        one begins, and the last one's end is the stream's."""
        self._ending = True
        self.arena.give_up()
        self.arena.await_idle(wait_s)
        self.channel.close(because)
        self.channel.shut_if_free()  # it may have been closed before, and waited for its tickets

    @property
    def open(self) -> bool:
        return not self.channel.closed

    def hold(self) -> None:
        """A ticket was given."""
        with self._lock:
            self._holds += 1

    def release(self) -> bool:
        """A ticket is finished. True: it was the last, and the session has ended with it."""
        with self._lock:
            self._holds -= 1
            because = self._close_because if self._holds <= 0 else ""
        if because:
            self.channel.close(because)
        if self.channel.closed:
            self.channel.shut_if_free()
        return bool(because)

    def close_when_free(self, because: str) -> bool:
        """End the stream as soon as no ticket is held. True: it has ended."""
        with self._lock:
            self._close_because = because
            free = self._holds <= 0
        if free:
            self.channel.close(because)
        return free


def attach(socket_path: str, hello: Hello, clock: Clock, within_s: float = 0.0) -> Session:
    """A session with the agent behind `socket_path`. within_s: 0 for ATTACH_DEADLINE_S. Raises
    AttachFailed."""
    within_s = within_s or ATTACH_DEADLINE_S
    deadline_s = clock() + within_s
    channel = _connect(socket_path, clock, within_s)
    try:
        welcome = _greet(channel, hello, deadline_s, within_s)
        path = os.path.join(os.path.dirname(socket_path), os.path.basename(welcome.arena))
        arena = Arena(
            path,
            epoch=welcome.epoch,
            file_bytes=welcome.arena_bytes,
            data_offset=welcome.data_offset,
            extent_bytes=welcome.extent_bytes,
        )
    except (ArenaRefused, ChannelClosed, OSError) as error:
        channel.close("attaching failed")
        raise AttachFailed(str(error)) from error
    except AttachFailed:
        channel.close("attaching failed")
        raise
    return Session(channel, welcome, arena, shown_to(arena, welcome, len(hello.spaces)))


def _connect(socket_path: str, clock: Clock, within_s: float) -> Channel:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # close-on-exec, as Python's all are
    sock.settimeout(within_s)
    try:
        sock.connect(socket_path)
    except OSError as error:
        sock.close()
        raise AttachFailed(f"no agent there: {advice.on_connecting(error, socket_path)}") from error
    return Channel(sock, clock=clock)


def _greet(channel: Channel, hello: Hello, deadline_s: float, within_s: float) -> Welcome:
    call = channel.start(Op.HELLO, hello.encode(), deadline_s)
    answer = channel.wait(call, deadline_s)
    if answer is None:
        raise AttachFailed(f"no answer to HELLO within {within_s:.3g} s: {advice.SLOW}")
    if answer.status != Status.OK:
        said = sentence(answer)
        if answer.status == Status.BAD_VERSION:
            said = f"{said}; {advice.OTHER_VERSION}"
        raise AttachFailed(f"the agent refused HELLO: {said}")
    try:
        welcome = decode_reply(answer.op, answer.payload)
    except WireError as error:
        said = f"HELLO was answered with nonsense: {error.sentence}; {advice.NO_AGENTS_SOCKET}"
        raise AttachFailed(said) from error
    if not isinstance(welcome, Welcome):
        raise AttachFailed(f"HELLO was answered with operation {answer.op}")
    return welcome
