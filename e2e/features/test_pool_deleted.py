"""A pool is deleted: engines that have an agent go on, with what it holds."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.kubectl import Kubectl, until
from rig.pool import KIND
from rig.reach import restarts
from waits import ATTACHED_S, STATUS_S

TOKENS = 10 * BLOCK_TOKENS


def test_engines_go_on_without_their_pool(kubectl: Kubectl, engine: Engine) -> None:
    before = engine.pod()
    pool = before["metadata"]["annotations"]["onggi.dev/pool"]
    asked = prompt(seed=30, tokens=TOKENS)
    first = engine.ask(asked)
    kubectl.delete(KIND, pool, STATUS_S)
    assert kubectl.find(KIND, pool) is None

    fresh = engine.ask(prompt(seed=31, tokens=TOKENS))
    assert fresh.cached_tokens == 0

    def hit() -> bool:
        engine.forget()
        again = engine.ask(asked)
        assert again.tokens == first.tokens
        return again.cached_tokens == reusable_tokens(TOKENS)

    until("a hit without a pool", hit, ATTACHED_S)
    after = engine.pod()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    for container in ("vllm", "onggi-agent"):
        assert restarts(after, container) == restarts(before, container)
