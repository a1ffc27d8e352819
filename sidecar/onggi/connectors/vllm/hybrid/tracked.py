"""What the scheduler side remembers of one request of a model with several kinds of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from onggi.client import Client
from onggi.connectors.vllm.keys import RequestKeys
from onggi.connectors.vllm.tracked import NEVER_ASKED, OFFER_MARGIN_S
from onggi.link import Asked
from onggi.outcomes import Load
from onggi.pending import PendingLoad
from onggi_core.wire.requests import LoadOutcome


@dataclass
class Part:
    """Blocks of one kind that a load brings. first: the number of the first one in the request."""

    kind: int
    first: int
    keys: Sequence[bytes]
    client: Client
    pending: PendingLoad
    load: Load | None = None

    def poll(self) -> bool | None:
        """Whether all of it is pinned; None while nobody knows."""
        if self.load is None:
            self.load = self.pending.poll()
        return None if self.load is None else self.load.blocks == len(self.keys)

    @property
    def held(self) -> bool:
        """Whether the agent that pinned it, or brings it, is there. False: or nothing came."""
        load = self.load
        return load is None or (bool(load.rows) and self.client.holds(load.rows[0]))

    def finish(self, outcome: LoadOutcome) -> None:
        if self.load is None:
            self.pending.cancel()
        else:
            self.client.finish_load(self.load, outcome)


@dataclass
class Offer:
    """A promise: all tokens up to `tokens`, of which the engine has the first `local`.

    most: the cap it was made under. waits: some of it comes from disk; disk_tokens: how many of
    them, as far as the agent said. asked_s: when it was made; waited_s: how long it then took.
    """

    local: int
    most: int
    tokens: int
    parts: list[Part]
    waits: bool
    disk_tokens: int
    asked_s: float
    waited_s: float = 0.0

    def poll(self) -> bool | None:
        """Whether all of it is pinned; None while nobody knows. One part that fell short settles
        it."""
        said = [part.poll() for part in self.parts]
        if False in said:
            return False
        return None if None in said else True

    @property
    def expires_s(self) -> float:
        loads = [part.load for part in self.parts]
        return min((load.expires_s if load is not None else 0.0) for load in loads)

    def answers(self, local: int, most: int, now_s: float) -> bool:
        fresh = self.poll() is None or now_s + OFFER_MARGIN_S < self.expires_s
        there = all(part.held for part in self.parts)
        return self.local == local and self.most == most and fresh and there

    def finish(self, outcome: LoadOutcome) -> None:
        for part in self.parts:
            part.finish(outcome)


@dataclass
class Loading:
    """A promise that was taken up. blocks: where each part goes. sent, dead, said, copied_s: as
    for loads of one kind. right: all ranks so far have all of it."""

    number: int
    request_id: str
    offer: Offer
    blocks: list[tuple[tuple[int, ...], ...]]
    sent: bool = False
    dead: bool = False
    said: int = 0
    right: bool = True
    copied_s: float = 0.0

    def heard(self, blocks: int) -> None:
        self.right = self.right and blocks > 0


@dataclass
class Tracked:
    """keys: for each kind. saved: for each kind the leading blocks that are there, were handed to
    the workers or are given up. missed, asked, frozen, reached, doubted: as for models of one
    kind."""

    request: Any
    keys: tuple[RequestKeys, ...]
    saved: list[int]
    asked: list[tuple[Client, Asked]] = field(default_factory=list)
    offer: Offer | None = None
    missed: tuple[int, int, float] = NEVER_ASKED
    sources: tuple[int, int] = (0, 0)
    frozen: bool = False
    reached: int = 0
    doubted: int = 0
