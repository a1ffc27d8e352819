"""Real engines of many ranks: each finds its own parts again, and all tokens are as without Onggi.

Four processes at once on a machine that may have two cores, so the prompts are few.
"""

from __future__ import annotations

from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, connector, prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PROMPTS = [prompt(1, 700), prompt(2, 300), prompt(3, 400, salt="a")]
CACHED = [21 * BLOCK, 9 * BLOCK, 12 * BLOCK]
HEAD_PAGE = 65_536
"""4 layers, a head of 64, keys and values, float32, 32 tokens."""
FOUR = {"tensor_parallel_size": 4}
SQUARE = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}


@pytest.mark.parametrize(
    ("name", "family", "block_bytes", "more"),
    [
        ("four", "plain", 4 * HEAD_PAGE, FOUR),
        ("replicated", "grouped", 4 * HEAD_PAGE, FOUR),  # of two heads, each on two ranks
        ("square", "grouped", 2 * HEAD_PAGE, SQUARE),
        ("hybrid-square", "hybrid", 0, SQUARE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_many_ranks_find_their_own_parts_again(
    start: Any, agent_process: Any, name: str, family: str, block_bytes: int, more: Any
) -> None:
    """block_bytes: of a block on all ranks together, where all blocks are alike."""
    more = {**more, "family": family}
    with start("", f"{name}-bare", **more) as bare:
        right = bare.generate(*PROMPTS, max_tokens=20)["tokens"]
    agent = agent_process(memory="96MiB", disk="256MiB")
    with start(agent.socket, name, kv_transfer_config=connector(), **more) as engine:
        assert engine.generate(*PROMPTS, max_tokens=20)["tokens"] == right
        stored = engine.settled()
        warm = engine.generate(*PROMPTS, max_tokens=20)
        metrics = engine.settled()
    assert (warm["tokens"], warm["cached"]) == (right, CACHED)
    assert stored["vllm:onggi_loaded_tokens_host"] == 0
    assert metrics["vllm:onggi_loaded_tokens_host"] == sum(CACHED)
    assert metrics["vllm:onggi_failed_load_blocks"] == 0
    assert metrics["vllm:onggi_faults"] == 0
    if block_bytes:
        assert metrics["vllm:onggi_loaded_bytes"] == sum(CACHED) // BLOCK * block_bytes
