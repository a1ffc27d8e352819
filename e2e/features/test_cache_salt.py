"""Two cache salts never share a block, wherever the block lies."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.figures import agent_figures
from rig.kubectl import Kubectl, until
from waits import STORED_S

TOKENS = 20 * BLOCK_TOKENS


def test_two_salts_never_share(kubectl: Kubectl, engine: Engine) -> None:
    asked = prompt(seed=10, tokens=TOKENS)
    before = agent_figures(kubectl, engine.pod())["onggi_stored_blocks_total"]

    def stored() -> float:
        return agent_figures(kubectl, engine.pod())["onggi_stored_blocks_total"] - before

    first = engine.ask(asked, salt="tenant-a")
    assert first.cached_tokens == 0
    until("the blocks of tenant-a", lambda: stored() >= 20, STORED_S)
    engine.forget()

    assert engine.ask(asked, salt="tenant-b").cached_tokens == 0
    until("the blocks of tenant-b", lambda: stored() >= 40, STORED_S)
    assert engine.ask(asked).cached_tokens == 0
    until("the blocks of nobody", lambda: stored() >= 60, STORED_S)
    engine.forget()

    again = engine.ask(asked, salt="tenant-a")
    assert again.cached_tokens == reusable_tokens(TOKENS)
    assert again.tokens == first.tokens
