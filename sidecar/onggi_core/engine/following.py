"""Which policy the tiers follow, and what they would save: ghost caches on the live stream.

One set of ghosts stands for both tiers. What is written back lies on disk too, so together they
hold as many blocks as the larger one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from onggi_core.engine.session import Session
from onggi_core.engine.state import State
from onggi_core.policy.ghosts import Ghosts
from onggi_core.policy.names import PolicyName
from onggi_core.wire.replies import Mode

ASKED_MAX: Final = 4096
"""Blocks of one request that the ghosts see, from its start. A longer prompt's end is kept or lost
with what comes before it."""
WAITING_MAX: Final = 65536
"""Blocks of prompts that the ghosts have not seen yet: five megabytes of keys. Past it the oldest
prompts are never seen, which makes the sample thinner and nothing wrong; they are counted."""
_OVER: Final = object()
"""No part of a prompt is left."""
PACE_PROMPTS: Final = 64
"""After so many prompts the rankings are told anew how many uses go by from one to the next: what
is stored and written down for it are uses too, while the ghosts count prompts."""


class Following:
    """Prompts are noted when they come and shown to the ghosts when nobody wants anything: eleven
    ghost caches take longer than all else there is to a lookup, and whoever asks next would wait
    for them. So they see a prompt a part at a time."""

    __slots__ = (
        "_block_bytes",
        "_budget_bytes",
        "_candidates",
        "_paced_prompts",
        "_paced_use",
        "_under_way",
        "_waiting",
        "_waiting_blocks",
        "asked_blocks",
        "asked_prompts",
        "asked_tokens",
        "ghosts",
    )

    def __init__(self, candidates: Sequence[PolicyName]) -> None:
        self._candidates = candidates
        self.ghosts: Ghosts | None = None
        """None until the first prompt says how large a block is."""
        self.asked_prompts = 0
        self.asked_blocks = 0
        self.asked_tokens = 0
        self._budget_bytes = 0
        self._block_bytes = 0
        self._paced_prompts = self._paced_use = 0
        self._waiting: deque[tuple[Sequence[bytes], int, int]] = deque()
        """Keys of a prompt, the bytes that one of its blocks takes over all ranks, its number."""
        self._waiting_blocks = 0
        self._under_way: Iterator[None] | None = None
        """The ghosts are seeing a prompt: what is left of it."""

    @property
    def waiting(self) -> bool:
        """Whether there is a prompt that the ghosts have not seen, or not all of."""
        return self._under_way is not None or bool(self._waiting)

    def asked(self, state: State, session: Session, keys: Sequence[bytes]) -> None:
        """A prompt was asked about, for the one time that it counts."""
        if state.mode is Mode.PAUSED or not keys:
            return
        block_tokens = session.spaces[0].spec.block_tokens
        self.asked_prompts += 1
        self.asked_blocks += len(keys)
        if self.asked_prompts - self._paced_prompts == PACE_PROMPTS:
            self._pace(state)
        self.asked_tokens += len(keys) * block_tokens
        seen = keys[:ASKED_MAX]
        block_bytes = sum(space.stride_bytes for space in session.spaces)
        self._waiting.append((seen, block_bytes, self.asked_prompts))
        self._waiting_blocks += len(seen)
        while self._waiting_blocks > WAITING_MAX:
            self._waiting_blocks -= len(self._waiting.popleft()[0])
            state.counters.unseen_prompts += 1

    def work(self, state: State) -> None:
        """Shows the ghosts a part of the oldest prompt that waits. After its last part the tiers
        follow whoever is ahead then."""
        if not self.waiting:
            return
        if self._under_way is None:
            keys, block_bytes, number = self._waiting.popleft()
            self._waiting_blocks -= len(keys)
            self._under_way = self._of_budget(state, block_bytes).parts(keys, number)
        if next(self._under_way, _OVER) is _OVER:
            self._under_way = None
            assert self.ghosts is not None, "made for the prompt"
            state.host.ranking.chooser = state.disk.ranking.chooser = self.ghosts.chooser()

    def _pace(self, state: State) -> None:
        """How many uses a prompt takes of late, in the units of the rankings."""
        use = state.use()
        pace = (use - self._paced_use) / PACE_PROMPTS
        state.host.ranking.pace = state.disk.ranking.pace = pace
        self._paced_prompts, self._paced_use = self.asked_prompts, use

    def figures(self) -> dict[str, Any]:
        """For STATS: the policy in force, hits by size, and what this budget would save."""
        if self.ghosts is None:
            return {
                "policy": "",
                "curve": [],
                "demand": self._demand([]),
                "observe": self._observed(0.0),
            }
        best = self.ghosts.best()
        curve = [[blocks, round(share, 4)] for blocks, share in self.ghosts.curve()]
        return {
            "policy": best.value,
            "curve": curve,
            "demand": self._demand(curve if self.ghosts.settled else []),
            "observe": self._observed(self.ghosts.shares().get(best, 0.0)),
        }

    def _demand(self, curve: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """For the operator: the curve in bytes, once it is drawn from enough to act on."""
        return {
            "asked_tokens": self.asked_tokens,
            "curve": sorted({blocks * self._block_bytes: share for blocks, share in curve}.items()),
        }

    def _observed(self, share: float) -> dict[str, Any]:
        return {
            "asked_blocks": self.asked_blocks,
            "hit_share": round(share, 4),
            "hit_blocks": round(share * self.asked_blocks),
            "saved_tokens": round(share * self.asked_tokens),
        }

    def _of_budget(self, state: State, block_bytes: int) -> Ghosts:
        """The ghosts of the present budget; another budget begins with new ones."""
        facts = state.facts
        budget_bytes = max(
            state.extents.budget * facts.extent_bytes, state.segments.budget * facts.segment_bytes
        )
        if self.ghosts is None or budget_bytes != self._budget_bytes:
            self.ghosts = Ghosts(max(1, budget_bytes // block_bytes), self._candidates)
            self._budget_bytes = budget_bytes
            self._block_bytes = block_bytes
        return self.ghosts
