"""Two cache salts never share a block, wherever the block lies."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.kubectl import Kubectl, until
from rig.warmth import keep
from waits import ATTACHED_S

TOKENS = 20 * BLOCK_TOKENS
SEED = 10


def test_two_salts_never_share(kubectl: Kubectl, engine: Engine) -> None:
    """`keep` asserts that nothing of a prompt is found when it is asked the first time."""
    first = keep(kubectl, engine, SEED, TOKENS, salt="tenant-a")
    engine.forget()
    keep(kubectl, engine, SEED, TOKENS, salt="tenant-b")
    engine.forget()
    keep(kubectl, engine, SEED, TOKENS)

    def found_again() -> bool:
        engine.forget()
        again = engine.ask(prompt(SEED, TOKENS), salt="tenant-a")
        assert again.tokens == first.tokens
        return again.cached_tokens == reusable_tokens(TOKENS)

    until("the blocks of tenant-a", found_again, ATTACHED_S)
