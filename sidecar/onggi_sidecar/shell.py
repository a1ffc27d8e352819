"""The loop around the engine: what happened goes in, what it asks for is done.

Everything here runs on the agent's one event loop. A step reads and changes state without an
await in between, so nothing can come between a lookup and its pin; other threads hand their
events over through the mailbox.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from onggi_core.engine.actions import (
    Action,
    Answer,
    ForgetPage,
    ReadRun,
    Refuse,
    ReleaseExtent,
    ReleaseSegment,
    TouchExtent,
    WriteRun,
)
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Asked, Event, Tick
from onggi_core.engine.loads import WAIT_MAX_S
from onggi_core.wire.frame import FATAL, frame, refusal
from onggi_core.wire.requests import LoadPrepare
from onggi_sidecar.arena.toucher import Toucher
from onggi_sidecar.disk.tier import DiskTier

TICK_S: Final = 0.25
"""Leases are half a minute and a filesystem is asked again after seconds; a load's own deadline
has a timer of its own."""
WAIT_MARGIN_S: Final = 0.001
"""A timer may fire this much early by the clock it is compared with."""


class Peer(Protocol):
    """A client's connection, as the shell sees it."""

    def send(self, raw: bytes) -> None: ...

    def close_after_sending(self) -> None: ...

    def end(self) -> None: ...


class Shell:
    """Steps one engine. `disk` is absent when there is no disk tier."""

    def __init__(
        self,
        engine: Engine,
        *,
        disk: DiskTier | None,
        toucher: Toucher,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
    ) -> None:
        self.engine = engine
        self.peers: dict[int, Peer] = {}
        self._disk = disk
        self._toucher = toucher
        self._loop = loop
        self._clock = clock
        self._ticking: asyncio.TimerHandle | None = None

    def step(self, event: Event) -> None:
        """Let the engine decide and carry out what it says. Loop only."""
        self.carry_out(self.engine.step(event, self._clock()))

    def ask(self, asked: Asked) -> None:
        """A client's request; a load that has to wait gets a timer for its deadline."""
        actions = self.engine.step(asked, self._clock())
        request = asked.request
        if isinstance(request, LoadPrepare) and request.wait_ms and not _answers(actions, asked):
            wait_s = min(request.wait_ms / 1000, WAIT_MAX_S)  # what the engine gives at most
            self._loop.call_later(wait_s + WAIT_MARGIN_S, self.step, Tick())
        self.carry_out(actions)

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Answer(session, request_id, op, reply):
                    if (peer := self.peers.get(session)) is not None:
                        peer.send(frame(op, 0, request_id, reply.encode()))
                case Refuse(session, request_id, op, status, sentence):
                    if (peer := self.peers.get(session)) is not None:
                        peer.send(refusal(op, status, request_id, sentence))
                        if status in FATAL:
                            peer.close_after_sending()
                case ReadRun():
                    self._tier.read(action)
                case WriteRun():
                    self._tier.write(action)
                case ForgetPage():
                    self._tier.forget(action)
                case TouchExtent(number):
                    self._toucher.touch(number)
                case ReleaseExtent(number):
                    self._toucher.release(number)
                case ReleaseSegment(number):
                    self._tier.remove_segment(number)

    @property
    def _tier(self) -> DiskTier:
        """Without a disk tier the engine has no segments and so never asks for a page of it."""
        assert self._disk is not None
        return self._disk

    def start_ticking(self) -> None:
        self.step(Tick())
        self._ticking = self._loop.call_later(TICK_S, self.start_ticking)

    def stop_ticking(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()


def _answers(actions: list[Action], asked: Asked) -> bool:
    return any(
        isinstance(action, (Answer, Refuse))
        and action.session == asked.session
        and action.request_id == asked.request_id
        for action in actions
    )
