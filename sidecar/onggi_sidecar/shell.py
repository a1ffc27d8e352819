"""What stands around the engine: events go in, what it asks for is done.

Everything here runs on the data plane's thread. A step reads and changes state in one go, so
nothing can come between a lookup and its pin; other threads hand their events over through the
mailbox.
"""

from collections.abc import Callable
from typing import Final, Protocol

from onggi_core.engine.actions import (
    Action,
    Answer,
    ForgetPage,
    HurryRead,
    NoteUses,
    ReadRun,
    Refuse,
    ReleaseExtent,
    ReleaseSegment,
    TouchExtent,
    WriteRun,
)
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Asked, BudgetSet, Event, GoOn, Idle
from onggi_core.engine.loads import WAIT_MAX_S
from onggi_core.wire.frame import FATAL, frame, refusal
from onggi_core.wire.requests import LoadPrepare
from onggi_sidecar.disk.tier import DiskTier

WAIT_MARGIN_S: Final = 0.001
"""A wake-up may come this much early by the clock it is compared with."""


class Peer(Protocol):
    """A client's connection, as the shell sees it."""

    def send(self, raw: bytes) -> None: ...

    def close_after_sending(self) -> None: ...


class Extents(Protocol):
    """Who makes memory resident and gives it back, in its own time."""

    def touch(self, extent: int) -> None: ...

    def release(self, extent: int) -> None: ...


class Shell:
    """Steps one engine. `disk` is absent when there is no disk tier. `wake_at` is told when a load
    that waits has to be looked at again, `again` what to call when others had their turn, and
    `when_idle` what to call once nobody wants anything; `refused` of what the engine refuses."""

    def __init__(
        self,
        engine: Engine,
        *,
        disk: DiskTier | None,
        toucher: Extents,
        clock: Callable[[], float],
    ) -> None:
        self.engine = engine
        self.peers: dict[int, Peer] = {}
        self.wake_at: Callable[[float], None] = lambda _: None
        self.again: Callable[[Callable[[], None]], None] = lambda _: None
        self.when_idle: Callable[[Callable[[], None]], None] = lambda _: None
        self.refused: Callable[[Refuse], None] = lambda _: None
        self._disk = disk
        self._toucher = toucher
        self._clock = clock
        self._goes_on = False
        self._idles = False

    def step(self, event: Event) -> None:
        """Let the engine decide and carry out what it says."""
        if type(event) is BudgetSet and self._disk is not None:
            self._disk.segments.make_ahead_within(event.segments)
        self.carry_out(self.engine.step(event, self._clock()))
        self._ask_for_turns()

    def ask(self, asked: Asked) -> None:
        """A client's request; a load that has to wait is looked at again at its deadline."""
        now_s = self._clock()
        actions = self.engine.step(asked, now_s)
        request = asked.request
        if isinstance(request, LoadPrepare) and request.wait_ms and not _answers(actions, asked):
            wait_s = min(request.wait_ms / 1000, WAIT_MAX_S)  # what the engine gives at most
            self.wake_at(now_s + wait_s + WAIT_MARGIN_S)
        self.carry_out(actions)
        self._ask_for_turns()

    def _ask_for_turns(self) -> None:
        if self.engine.busy and not self._goes_on:
            self._goes_on = True
            self.again(self._go_on)
        if self.engine.curious and not self._idles:
            self._idles = True
            self.when_idle(self._idle)

    def _go_on(self) -> None:
        self._goes_on = False
        self.step(GoOn())

    def _idle(self) -> None:
        self._idles = False
        self.step(Idle())

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Answer):  # most are; a class pattern costs three times as much
                if (peer := self.peers.get(action.session)) is not None:
                    peer.send(frame(action.op, 0, action.request_id, action.reply.encode()))
            else:
                self._carry_out_rare(action)

    def _carry_out_rare(self, action: Action) -> None:
        match action:
            case Refuse(session, request_id, op, status, sentence):
                self.refused(action)
                if (peer := self.peers.get(session)) is not None:
                    peer.send(refusal(op, status, request_id, sentence))
                    if status in FATAL:
                        peer.close_after_sending()
            case ReadRun():
                self._tier.read(action)
            case WriteRun():
                self._tier.write(action)
            case HurryRead(job):
                self._tier.hurry(job)
            case ForgetPage():
                self._tier.forget(action)
            case NoteUses():
                self._tier.note_uses(action)
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


def _answers(actions: list[Action], asked: Asked) -> bool:
    return any(
        isinstance(action, (Answer, Refuse))
        and action.session == asked.session
        and action.request_id == asked.request_id
        for action in actions
    )
