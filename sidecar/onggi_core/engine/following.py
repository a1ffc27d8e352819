"""Which policy the tiers follow, and what they would save: ghost caches on the live stream.

One set of ghosts stands for both tiers. What is written back lies on disk too, so together they
hold as many blocks as the larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onggi_core.engine.session import Session
from onggi_core.engine.state import State
from onggi_core.policy.ghosts import Ghosts
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.wire.replies import Mode

ASKED_MAX: Final = 8192
"""Blocks of one request that the ghosts see, from its start: what bounds the step's time. A longer
prompt's end is kept or lost with what comes before it."""

FOLLOWED: Final = tuple(
    name for name in FIXED if name not in (PolicyName.SECOND_SIGHT, PolicyName.WORTH_SECOND_SIGHT)
)
"""All that choose what goes. Those that turn new blocks away as well are not run: the tiers take
what is stored."""


class Following:
    __slots__ = ("_budget_bytes", "asked_blocks", "asked_tokens", "ghosts")

    def __init__(self) -> None:
        self.ghosts: Ghosts | None = None
        """None until the first prompt says how large a block is."""
        self.asked_blocks = 0
        self.asked_tokens = 0
        self._budget_bytes = 0

    def asked(self, state: State, session: Session, keys: Sequence[bytes]) -> None:
        """A prompt was asked about, once: the ghosts see it, and the tiers follow who is ahead."""
        if state.mode is Mode.PAUSED or not keys:
            return
        block_tokens = session.spaces[0].spec.block_tokens
        self.asked_blocks += len(keys)
        self.asked_tokens += len(keys) * block_tokens
        ghosts = self._of_budget(state, session)
        ghosts.access(keys[:ASKED_MAX], state.use())
        state.host.ranking.chooser = state.disk.ranking.chooser = ghosts.chooser()

    def figures(self) -> dict[str, Any]:
        """For STATS: the policy in force, hits by size, and what this budget would save."""
        if self.ghosts is None:
            return {"policy": "", "curve": [], "observe": self._observed(0.0)}
        best = self.ghosts.best()
        return {
            "policy": best.value,
            "curve": [[blocks, round(share, 4)] for blocks, share in self.ghosts.curve()],
            "observe": self._observed(self.ghosts.shares()[best]),
        }

    def _observed(self, share: float) -> dict[str, Any]:
        return {
            "asked_blocks": self.asked_blocks,
            "hit_share": round(share, 4),
            "hit_blocks": round(share * self.asked_blocks),
            "saved_tokens": round(share * self.asked_tokens),
        }

    def _of_budget(self, state: State, session: Session) -> Ghosts:
        """The ghosts of the present budget; another budget begins with new ones."""
        facts = state.facts
        budget_bytes = max(
            state.extents.budget * facts.extent_bytes, state.segments.budget * facts.segment_bytes
        )
        if self.ghosts is None or budget_bytes != self._budget_bytes:
            block_bytes = sum(space.stride_bytes for space in session.spaces)
            self.ghosts = Ghosts(max(1, budget_bytes // block_bytes), FOLLOWED)
            self._budget_bytes = budget_bytes
        return self.ghosts
