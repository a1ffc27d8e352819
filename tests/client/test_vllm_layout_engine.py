"""A real engine whose KV cache has all layers of a block side by side (vLLM's layout BLHNC).

vLLM offers it on GPUs, where one copy moves a block then. For a CPU it names another layout only;
but its kernels there go by the tensors' strides, so the engines of these tests are told of it as
well (engine_process.py), and all else is vLLM's: who chooses, allocates and computes. That no GPU
was at hand is the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, AgentProcess, connector, prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PROMPTS = [prompt(1, 1500), prompt(2, 400), prompt(3, 700, salt="a")]
CACHED = [46 * BLOCK, 12 * BLOCK, 21 * BLOCK]
OUTERMOST = {"VLLM_KV_CACHE_LAYOUT": "BLHNC"}


def test_blocks_outermost_are_stored_and_found_again(start: Any, tmp_path: Path) -> None:
    with start("", "bare") as bare:
        right = bare.generate(*PROMPTS, max_tokens=20)["tokens"]
    more = {"kv_transfer_config": connector(layerwise="off"), "env": OUTERMOST}
    (tmp_path / "run").mkdir()
    with (
        AgentProcess(tmp_path / "run", memory="96MiB", disk="256MiB") as agent,
        start(agent.socket, "outermost", **more) as engine,
    ):
        assert engine.generate(*PROMPTS, max_tokens=20)["tokens"] == right
        engine.forget()
        warm = engine.generate(*PROMPTS, max_tokens=20)
        assert (warm["tokens"], warm["cached"]) == (right, CACHED)
        metrics = engine.settled()
        assert engine.ask(do="layout") == {"layout": "BLHNC", "copies_a_block": 1}
    assert metrics["vllm:onggi_loaded_tokens_host"] == sum(CACHED)
    assert metrics["vllm:onggi_faults"] == 0
