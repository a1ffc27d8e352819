"""Asking an agent, part by part, where the blocks are that routers were told of.

The agent says nothing of its own when a block moves or goes: to be woken for it costs an engine
more than to ask once in a while. So a part is asked about in one step, and the answer is looked at
in a later one; no step waits. A round takes EVERY_S for each LOCATE_KEYS_MAX blocks told of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from onggi.client import Client
from onggi.locating import PendingTiers
from onggi_core.wire.frame import LOCATE_KEYS_MAX

EVERY_S: Final = 0.25
"""Between two questions: rare beside an engine's steps, and soon enough for a router."""

AWAY_S: Final = 10.0
"""After as long as this without an agent what it held counts as gone: one that only restarts is
back sooner, with most of it."""

V = TypeVar("V")


class Sweep(Generic[V]):
    """Of the scheduler's thread alone."""

    def __init__(
        self,
        client: Client,
        told: dict[bytes, V],
        key: Callable[[bytes, V], bytes],
        located: Callable[[list[tuple[bytes, V, int]]], None],
    ) -> None:
        """told: what routers were told of, by name; a value is replaced when it is told of anew.
        key: the agent's of one. located: gets what there is to know, an At each."""
        self._client = client
        self._told = told
        self._key = key
        self._located = located
        self._round: list[bytes] = []
        """Names still to be asked about before all begin again, the next one last."""
        self._part: list[tuple[bytes, V]] = []
        self._asked: PendingTiers | None = None
        self._due_s = 0.0
        self._alone_since_s: float | None = None

    def step(self) -> None:
        """Take in an answer, if one is there, and ask on when it is time to. Never waits."""
        if self._asked is not None:
            tiers = self._asked.poll()
            if tiers is None:
                return
            self._asked = None
            self._take_in(tiers)
        now_s = self._client.now_s()
        if now_s < self._due_s or not self._told:
            return
        self._due_s = now_s + EVERY_S
        self._part = self._next()
        if not self._part:
            return
        self._asked = self._client.locate_begin([self._key(*each) for each in self._part])
        if self._nobody(now_s):
            self._take_in(bytes(len(self._part)))

    def _next(self) -> list[tuple[bytes, V]]:
        """The part to ask about: each comes once before all begin again."""
        told = self._told
        if not self._round:
            self._round = list(told)[::-1]
        names = self._round[: -LOCATE_KEYS_MAX - 1 : -1]
        del self._round[-LOCATE_KEYS_MAX:]
        return [(name, told[name]) for name in names if name in told]

    def _take_in(self, tiers: bytes) -> None:
        """tiers: of the part; none at all: it is not known. What was told of anew since is not what
        was asked about."""
        told = self._told
        self._located(
            [
                (name, value, at)
                for (name, value), at in zip(self._part, tiers, strict=False)
                if told.get(name) is value
            ]
        )

    def _nobody(self, now_s: float) -> bool:
        """No agent for long. One of an earlier version, which cannot be asked, is one."""
        if self._asked is not None or self._client.session_number:
            self._alone_since_s = None
        elif self._alone_since_s is None:
            self._alone_since_s = now_s
        return self._alone_since_s is not None and now_s - self._alone_since_s >= AWAY_S
