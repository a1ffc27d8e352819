"""Real engines with a model that drafts: its layers are kept with those of the one it drafts for.

Tokens do not show what became of them, since each draft is checked: how many of the drafts are
taken does.
"""

from __future__ import annotations

from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, EngineProcess, connector, prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PROMPTS = [prompt(1, 700), prompt(2, 300), prompt(3, 320)]
TOKENS = 40
DRAFTS = 3


def speculative(method: str, model: str) -> dict[str, Any]:
    return {"method": method, "model": model, "num_speculative_tokens": DRAFTS}


def taken(engine: EngineProcess) -> float:
    return engine.metrics()["vllm:spec_decode_num_accepted_tokens"]


def one_by_one(engine: EngineProcess) -> tuple[list[Any], list[int], list[float]]:
    """Tokens, tokens that were cached and drafts that were taken, of each prompt."""
    tokens, cached, took = [], [], []
    for each in PROMPTS:
        before = taken(engine)
        said = engine.generate(each, max_tokens=TOKENS)
        tokens.append(said["tokens"][0])
        cached.append(said["cached"][0])
        took.append(taken(engine) - before)
    return tokens, cached, took


@pytest.mark.parametrize(
    ("name", "family", "method", "drafter", "left_out"),
    [
        ("same", "grouped", "draft_model", "grouped", 0),
        ("wider", "grouped", "draft_model", "plain", 0),
        ("eagle", "shallow", "eagle", "head", 1),
    ],
)
def test_what_drafts_goes_on_from_its_own_blocks(
    start: Any,
    agent_process: Any,
    model_of: Any,
    name: str,
    family: str,
    method: str,
    drafter: str,
    left_out: int,
) -> None:
    """left_out: blocks of a hit that are computed, since they depend on what comes after them.
    Another drafter of the same shape finds nothing: the blocks hold what the first one made."""
    more = {"family": family}
    with start("", f"{name}-bare", **more) as bare:
        right = [bare.generate(each, max_tokens=TOKENS)["tokens"][0] for each in PROMPTS]
    agent = agent_process(memory="128MiB")
    more = {**more, "kv_transfer_config": connector()}
    drafts = speculative(method, model_of(drafter))
    with start(agent.socket, name, speculative_config=drafts, **more) as engine:
        cold, none, took = one_by_one(engine)
        engine.forget()
        warm, cached, took_warm = one_by_one(engine)
        metrics = engine.settled()
    assert cold == warm == right
    assert none == [0, 0, 0]
    assert cached == [(blocks - left_out) * BLOCK for blocks in (21, 9, 9)]
    assert took == took_warm
    if name in ("same", "eagle"):
        assert min(took) > TOKENS / 2
    assert metrics["vllm:onggi_loaded_tokens_host"] == sum(cached)
    assert metrics["vllm:onggi_failed_load_blocks"] == 0
    assert metrics["vllm:onggi_faults"] == 0
    if name == "wider":
        return
    drafts = speculative(method, model_of(drafter, seed=2))
    with start(agent.socket, f"{name}-other", speculative_config=drafts, **more) as engine:
        said, cached, _ = one_by_one(engine)
    assert (said, cached) == (right, [0, 0, 0])
