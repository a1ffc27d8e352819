"""Keeping prompts and finding them again, on a machine of any speed.

The client gives an agent 50 ms for an answer and two seconds for a disk, and goes on without it
after that: a cache must not make a request wait. So on a machine that is busy with something else
a store or a load may come too late, which is right, and no failure of what is tested here. A few
prompts are kept, and one that is found whole is enough; the tokens are the same in any case.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from waits import COUNTED_S, POLL_S, STORED_S

from rig.engine import BLOCK_TOKENS, Answer, Engine, prompt
from rig.figures import agent_figures
from rig.kubectl import Kubectl, until

STORED: Final = "onggi_stored_blocks_total"
HITS: Final = {
    "host": 'onggi_hit_blocks_total{tier="host"}',
    "disk": 'onggi_hit_blocks_total{tier="disk"}',
}


@dataclass(frozen=True, slots=True)
class Found:
    """The first prompt that was found whole. hit_blocks: of the tier, in this life of the agent."""

    cold: Answer
    warm: Answer
    hit_blocks: int


def figure(kubectl: Kubectl, engine: Engine, name: str) -> int:
    return int(agent_figures(kubectl, engine.pod()).get(name, 0))


def keep(
    kubectl: Kubectl, engine: Engine, seed: int, tokens: int, *, salt: str | None = None
) -> Answer:
    """Ask a new prompt until all of its blocks are stored; answers with the first answer."""
    asked, before = prompt(seed, tokens), figure(kubectl, engine, STORED)
    cold = engine.ask(asked, salt=salt)
    assert cold.cached_tokens == 0

    def stored() -> bool:
        end = time.monotonic() + COUNTED_S
        while time.monotonic() < end:
            if figure(kubectl, engine, STORED) - before >= tokens // BLOCK_TOKENS:
                return True
            time.sleep(POLL_S)
        engine.forget()  # some came too late: have the engine compute and store them again
        assert engine.ask(asked, salt=salt).tokens == cold.tokens
        return False

    until(f"the blocks of prompt {seed}", stored, STORED_S)
    return cold


def find(
    kubectl: Kubectl, engine: Engine, cold: Sequence[tuple[int, Answer]], tokens: int, tier: str
) -> Found:
    """Ask prompts again until one is loaded whole from the tier. cold: seeds and first answers.

    AssertionError if none is, or if any answer differs from the first to the same prompt.
    """
    blocks = (tokens - 1) // BLOCK_TOKENS
    hits = figure(kubectl, engine, HITS[tier])
    for seed, before in cold:
        warm = engine.ask(prompt(seed, tokens))
        assert warm.tokens == before.tokens
        had, end = hits, time.monotonic() + COUNTED_S
        while (hits := figure(kubectl, engine, HITS[tier])) < had + blocks:
            if time.monotonic() > end:
                break
            time.sleep(POLL_S)
        if hits == had + blocks:
            return Found(before, warm, hits)
    raise AssertionError(f"no prompt was loaded whole from {tier}; {hits} blocks were")
