"""A node is drained and comes back: the engine's next pod there finds what the last one left on
disk. Commands are those of docs/operator.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.kubectl import Kubectl, until
from rig.pages import commands, typed
from rig.pool import Pool
from rig.warmth import HITS, figure, find, keep
from rig.workloads import NODE
from waits import DRAINED_S, STATUS_S

TOKENS = 1500
"""The last block is not full, and is not kept."""
BLOCKS = TOKENS // BLOCK_TOKENS
SEEDS = (21, 22, 23)
LEFT_BY_OTHERS = ("plain", "opts-out", "typo", "disk-folder")
"""Bare pods, which a drain refuses to evict."""


@pytest.fixture
def back(kubectl: Kubectl) -> Iterator[None]:
    kubectl("delete", "pod", "--ignore-not-found", *LEFT_BY_OTHERS)
    yield
    kubectl("uncordon", NODE)


@pytest.mark.usefixtures("back")
def test_the_successor_on_the_node_starts_warm(
    kubectl: Kubectl, engine_pool: Pool, engine: Engine
) -> None:
    lines = [
        line.replace("node-1", NODE).replace("kvp chat", f"kvp {engine_pool.name}")
        for line in commands("Drain")
    ]
    cordon, draining, drain, uncordon = lines
    first = engine.pod()
    assert first["spec"]["nodeName"] == NODE
    keep(kubectl, engine, 20, TOKENS)
    cold = [(seed, keep(kubectl, engine, seed, TOKENS)) for seed in SEEDS]

    typed(kubectl, cordon)
    here = f"--namespace={kubectl.namespace} --timeout={STATUS_S}s"
    typed(kubectl, draining, here, timeout_s=STATUS_S)
    assert engine_pool.row()["REASON"] == "AgentsDraining"
    assert engine.ask(prompt(SEEDS[0], TOKENS)).tokens == cold[0][1].tokens, "it goes on serving"
    typed(kubectl, drain, f"--timeout={DRAINED_S}s", timeout_s=DRAINED_S)
    second = until("a successor", engine.pod, STATUS_S)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["status"]["phase"] == "Pending"
    assert "nodeName" not in second["spec"]

    typed(kubectl, uncordon)
    second = engine.ready()
    assert second["spec"]["nodeName"] == NODE
    engine.ask(prompt(seed=29, tokens=TOKENS))
    assert figure(kubectl, engine, HITS["disk"]) == 0
    before = engine_pool.status()["hits"]["diskBlocks"]
    found = find(kubectl, engine, cold, TOKENS, "disk")
    assert found.warm.cached_tokens == reusable_tokens(TOKENS) == BLOCKS * BLOCK_TOKENS
    assert found.warm.tokens == found.cold.tokens
    assert found.warm.first_token_s < found.cold.first_token_s
    print(f"first token: {found.cold.first_token_s:.3f} s, warm {found.warm.first_token_s:.3f} s")
    hits = found.hit_blocks
    status = engine_pool.until("disk hits", lambda s: s["hits"]["diskBlocks"] >= before + hits)
    assert status["hits"]["diskBlocks"] == before + hits
    assert status["tokensSaved"] >= hits * BLOCK_TOKENS
