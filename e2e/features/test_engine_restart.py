"""An engine dies, and what it had computed is still there for its next life."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, HITS, Engine, prompt, reusable_tokens
from rig.figures import agent_figures
from rig.kubectl import Kubectl, until
from rig.pool import Pool
from waits import STORED_S

TOKENS = 47 * BLOCK_TOKENS
"""1,504: the last token ends a block, which must be computed all the same."""


def test_a_killed_engine_finds_its_prompt_again(
    kubectl: Kubectl, pool: Pool, engine: Engine
) -> None:
    engine.ask(prompt(seed=1, tokens=TOKENS))  # the first answer of a life pays for warming up
    asked = prompt(seed=2, tokens=TOKENS)
    before = agent_figures(kubectl, engine.pod())
    cold = engine.ask(asked)
    assert cold.cached_tokens == 0

    def stored() -> float:
        now = agent_figures(kubectl, engine.pod())
        return now["onggi_stored_blocks_total"] - before["onggi_stored_blocks_total"]

    until("47 stored blocks", lambda: stored() >= TOKENS // BLOCK_TOKENS, STORED_S)

    engine.kill()

    engine.ask(prompt(seed=3, tokens=TOKENS))
    assert engine.figures()[HITS] == 0
    warm = engine.ask(asked)
    assert warm.cached_tokens == reusable_tokens(TOKENS) == 46 * BLOCK_TOKENS
    assert engine.figures()[HITS] == 46 * BLOCK_TOKENS  # from Onggi: this life computed none of it
    assert warm.tokens == cold.tokens
    assert warm.first_token_s < cold.first_token_s
    print(f"first token: {cold.first_token_s:.3f} s cold, {warm.first_token_s:.3f} s warm")

    saved = 46 * BLOCK_TOKENS
    status = pool.until("tokens saved", lambda s: s.get("tokensSaved", 0) >= saved)
    assert status["tokensSaved"] == saved
    assert status["hits"]["hostBlocks"] == 46
    assert status["hits"]["diskBlocks"] == 0
    assert status["pods"]["injected"] == 1
    assert status["pods"]["ready"] == 1
    row = pool.row()
    print(row)
    assert row["READY"] == "1/1"
    assert row["SAVED"] not in ("", "0")
