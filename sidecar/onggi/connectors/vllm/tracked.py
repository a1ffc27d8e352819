"""What the scheduler side remembers of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onggi.connectors.vllm.keys import RequestKeys
from onggi.link import Asked
from onggi.outcomes import Load
from onggi.pending import PendingLoad

OFFER_MARGIN_S: Final = 5.0
"""A pin that ends sooner is renewed before it is promised again: the step that uses it may be a
long prefill away."""

NEVER_ASKED: Final = (-1, -1, 0.0)


@dataclass
class Offer:
    """A promise: `blocks` after the first `local`, pinned (load) or on their way (pending).

    most: the cap it was made under; another question makes another offer. here: how many of them
    lay in host memory when it was made. asked_s: when it was; waited_s: how long those from disk
    took, once they have come.
    """

    local: int
    most: int
    blocks: int
    load: Load
    pending: PendingLoad | None
    here: int
    asked_s: float = 0.0
    waited_s: float = 0.0

    def answers(self, local: int, most: int, now_s: float) -> bool:
        """Whether this is the answer to that question, still."""
        fresh = self.pending is not None or now_s + OFFER_MARGIN_S < self.load.expires_s
        return self.local == local and self.most == most and fresh

    def sources(self, blocks: int, block_tokens: int) -> tuple[int, int]:
        """Tokens from host memory and from disk, if `blocks` of the promise are used."""
        if self.pending is None:
            disk = min(self.load.from_disk, blocks)
        else:
            disk = max(0, blocks - self.here)
        return (blocks - disk) * block_tokens, disk * block_tokens


@dataclass
class Loading:
    """A promise that was taken up and has not ended. sent: the workers know of it. dead: the
    request has ended; the load must still be reported. keys: of the blocks to load; first: the
    number of the first of them in the request. asked_s, waited_s: as in the offer. said: ranks that
    have reported, and fewest: the smallest number of leading blocks they named; copied_s: the
    longest time that one of them took."""

    number: int
    request_id: str
    first: int
    block_ids: tuple[int, ...]
    keys: Sequence[bytes]
    load: Load
    pending: PendingLoad | None
    asked_s: float = 0.0
    waited_s: float = 0.0
    copied_s: float = 0.0
    sent: bool = False
    dead: bool = False
    said: int = 0
    fewest: int = 0

    def heard(self, blocks: int) -> None:
        self.fewest = min(blocks, self.fewest) if self.said else blocks


@dataclass
class Tracked:
    """known: leading blocks the agent had when last asked. missed: the question (local blocks, most
    blocks) that was last answered with nothing, and until when that stays the answer. saved:
    leading blocks that are there or were handed to the workers. saves: those under way, job -> its
    first block. frozen, reached, doubted: see Remembered in requests.py."""

    request: Any
    keys: RequestKeys
    asked: Asked | None = None
    offer: Offer | None = None
    known: int = 0
    missed: tuple[int, int, float] = NEVER_ASKED
    saved: int = 0
    sources: tuple[int, int] = (0, 0)
    saves: dict[int, int] = field(default_factory=dict)
    frozen: bool = False
    reached: int = 0
    doubted: int = 0
