"""A Deployment of engines is rolled out anew, new pods beside old ones: what an old pod left on the
node is found by the pod of the next roll-out."""

from __future__ import annotations

import json

import pytest
from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.kubectl import Kubectl, Object
from rig.pool import Pool
from rig.warmth import HITS, figure, find, keep

pytestmark = pytest.mark.soak
"""Two more starts of an engine."""
TOKENS = 40 * BLOCK_TOKENS
SEEDS = (41, 42, 43)


def test_the_second_roll_out_finds_what_the_first_pod_left(
    kubectl: Kubectl, engine_pool: Pool, engine: Engine
) -> None:
    first = engine.pod()
    cold = [(seed, keep(kubectl, engine, seed, TOKENS)) for seed in SEEDS]
    before = engine_pool.status()["tokensSaved"]

    second = roll_out(kubectl, engine, "one")
    assert engine.ask(prompt(SEEDS[0], TOKENS)).tokens == cold[0][1].tokens
    third = roll_out(kubectl, engine, "two")
    assert len({pod["metadata"]["uid"] for pod in (first, second, third)}) == 3

    engine.ask(prompt(seed=49, tokens=TOKENS))
    assert figure(kubectl, engine, HITS["disk"]) == 0
    found = find(kubectl, engine, cold, TOKENS, "disk")
    assert found.warm.tokens == found.cold.tokens
    assert found.warm.cached_tokens == reusable_tokens(TOKENS)
    saved = before + found.hit_blocks * BLOCK_TOKENS
    status = engine_pool.until("its tokens", lambda s: s["tokensSaved"] >= saved)
    assert status["pods"] == {"matched": 1, "injected": 1, "ready": 1, "skipped": 0, "missed": 0}


def roll_out(kubectl: Kubectl, engine: Engine, word: str) -> Object:
    """A new pod becomes ready before the old one ends."""
    change = {
        "spec": {
            "strategy": {
                "$retainKeys": ["type", "rollingUpdate"],
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {"metadata": {"annotations": {"example.com/rolled-out": word}}},
        }
    }
    kubectl("patch", "deployment", engine.deployment, "--patch", json.dumps(change))
    return engine.ready()
