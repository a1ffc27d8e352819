"""The limit: a tier that knows the future gives up what is asked for again last."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from onggi_core.replay.trace import Prompt


def belady(prompts: Sequence[Prompt], blocks: int) -> float:
    """Hit rate of the tier that keeps, at any time, the blocks whose next uses come first. What
    comes before a block is asked for no later than it, so chains go from their ends by themselves.
    """
    next_uses = _next_uses(prompts)
    here: dict[int, tuple[int, int]] = {}
    """Block -> minus its next use and its depth: of those used next together, the deepest goes."""
    furthest: list[tuple[int, int, int]] = []
    asked = hits = 0
    for prompt, nexts in zip(prompts, next_uses, strict=True):
        asked += len(prompt.blocks)
        leading = True
        for depth, (block, following) in enumerate(zip(prompt.blocks, nexts, strict=True)):
            leading = leading and block in here
            hits += leading
            here[block] = (-following, -depth)
            heapq.heappush(furthest, (-following, -depth, block))
            while len(here) > blocks:
                minus, depth_, victim = heapq.heappop(furthest)
                if here.get(victim) == (minus, depth_):
                    del here[victim]
    return hits / asked if asked else 0.0


def _next_uses(prompts: Sequence[Prompt]) -> list[list[int]]:
    """For each block of each prompt, the number of the next prompt that has it."""
    never = len(prompts)
    coming: dict[int, int] = {}
    found: list[list[int]] = []
    for number in range(len(prompts) - 1, -1, -1):
        blocks = prompts[number].blocks
        found.append([coming.get(block, never) for block in blocks])
        coming.update(dict.fromkeys(blocks, number))
    found.reverse()
    return found
