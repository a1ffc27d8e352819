"""The engine's own policies over a stream of requests: what share of the blocks would be hits."""

from __future__ import annotations

from collections.abc import Iterable

from onggi_core.policy.names import PolicyName
from onggi_core.policy.shadow import fill
from onggi_core.policy.tier_policy import TierPolicy
from onggi_core.replay.trace import Prompt


class Replay:
    """One tier of one size under one policy. A hit is a block of the longest run of a prompt's
    first blocks that are all here: what lies behind a hole is of no use."""

    def __init__(self, blocks: int, name: PolicyName) -> None:
        self.blocks = blocks
        self.policy = TierPolicy(blocks, name)
        self.asked = 0
        self.hits = 0
        self._use = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / self.asked if self.asked else 0.0

    def ask(self, prompt: Prompt) -> int:
        """One request: how many of its blocks were hits. The others are stored, if admitted."""
        self._use += 1
        policy = self.policy
        policy.asked(prompt.keys, self._use)
        run = policy.ranking.run(prompt.blocks)
        counts = [0] * run + [policy.seen(key) for key in prompt.keys[run:]]
        fill(policy.ranking, self.blocks, prompt.blocks, run, counts, self._use)
        self.asked += len(prompt.blocks)
        self.hits += run
        return run


def replay(prompts: Iterable[Prompt], blocks: int, name: PolicyName) -> Replay:
    tier = Replay(blocks, name)
    for prompt in prompts:
        tier.ask(prompt)
    return tier
