"""An engine dies, and what it had computed is still there for its next life."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, HITS, Engine, prompt, reusable_tokens
from rig.kubectl import Kubectl
from rig.pool import Pool
from rig.warmth import find, keep

TOKENS = 47 * BLOCK_TOKENS
"""1,504: the last token ends a block, which must be computed all the same."""
SEEDS = (2, 3, 4)


def test_a_killed_engine_finds_its_prompt_again(
    kubectl: Kubectl, engine_pool: Pool, engine: Engine
) -> None:
    keep(kubectl, engine, 1, TOKENS)  # the first answer of a life pays for warming up
    cold = [(seed, keep(kubectl, engine, seed, TOKENS)) for seed in SEEDS]

    engine.kill()

    engine.ask(prompt(seed=9, tokens=TOKENS))
    assert engine.figures()[HITS] == 0
    found = find(kubectl, engine, cold, TOKENS, "host")
    assert found.warm.cached_tokens == reusable_tokens(TOKENS) == 46 * BLOCK_TOKENS
    assert engine.figures()[HITS] >= 46 * BLOCK_TOKENS  # from Onggi, says the engine too
    assert found.warm.tokens == found.cold.tokens
    assert found.warm.first_token_s < found.cold.first_token_s
    print(f"first token: {found.cold.first_token_s:.3f} s, warm {found.warm.first_token_s:.3f} s")

    hits = found.hit_blocks
    status = engine_pool.until("hits", lambda s: s.get("hits", {}).get("hostBlocks", 0) >= hits)
    assert status["hits"] == {"hostBlocks": hits, "diskBlocks": 0}
    assert status["tokensSaved"] == hits * BLOCK_TOKENS
    assert status["pods"]["injected"] == 1
    assert status["pods"]["ready"] == 1
    row = engine_pool.row()
    print(row)
    assert row["READY"] == "1/1"
    assert row["SAVED"] not in ("", "0")
