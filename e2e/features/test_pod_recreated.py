"""A pod goes and another comes on the same node: what lay on the node's disk is found."""

from __future__ import annotations

import time

import pytest
from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.figures import agent_figures
from rig.kubectl import Kubectl, Object, until
from rig.pool import Pool
from rig.workloads import NODE, disk_folder, engine_deployment, example
from waits import COUNTED_S, ON_DISK_S, POD_RUNNING_S, POLL_S

TOKENS = 1500
"""The last block is not full, and is not kept."""
BLOCKS = TOKENS // BLOCK_TOKENS
SEEDS = (21, 22, 23)
"""One is enough; on a machine whose disk is busy its load may come later than an engine waits."""
WRITTEN = 'onggi_moved_bytes_total{direction="in",tier="disk"}'
STORED = 'onggi_moved_bytes_total{direction="in",tier="host"}'
DISK_HITS = 'onggi_hit_blocks_total{tier="disk"}'


def test_a_new_pod_on_the_node_starts_warm(kubectl: Kubectl, engine: Engine) -> None:
    kubectl.apply(disk_folder("/var/lib/onggi", kubectl.namespace))

    def made() -> bool:
        return bool(kubectl.get("pod", "disk-folder")["status"]["phase"] == "Succeeded")

    until("the folder on the node", made, POD_RUNNING_S)
    kubectl.apply(example("pool-on-node.yaml"))
    pool = Pool(kubectl, "chat-on-node")
    kubectl.apply(engine_deployment(pool.name))
    first = engine.ready()
    assert first["spec"]["nodeName"] == NODE

    engine.ask(prompt(seed=20, tokens=TOKENS))
    prompts = [prompt(seed=seed, tokens=TOKENS) for seed in SEEDS]
    cold = [engine.ask(asked) for asked in prompts]
    assert [answer.cached_tokens for answer in cold] == [0] * len(SEEDS)
    until("every block on disk", lambda: _written(kubectl, engine), ON_DISK_S)

    engine.delete_pod()
    second = engine.ready()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["nodeName"] == NODE

    engine.ask(prompt(seed=29, tokens=TOKENS))
    hits = 0
    assert _disk_hits(kubectl, second) == hits
    for before, asked in zip(cold, prompts, strict=True):
        warm = engine.ask(asked)
        assert warm.tokens == before.tokens  # what came too late was computed instead
        hits, had = _counted(kubectl, second, hits + BLOCKS), hits
        if hits == had + BLOCKS:
            break
    else:
        pytest.fail(f"no prompt was loaded whole from disk; {hits} blocks were")
    assert warm.cached_tokens == reusable_tokens(TOKENS) == BLOCKS * BLOCK_TOKENS
    assert warm.first_token_s < before.first_token_s
    print(f"first token: {before.first_token_s:.3f} s cold, {warm.first_token_s:.3f} s from disk")
    status = pool.until("disk hits", lambda s: s.get("hits", {}).get("diskBlocks", 0) >= hits)
    assert status["hits"]["diskBlocks"] == hits
    assert status["tokensSaved"] >= BLOCKS * BLOCK_TOKENS


def _disk_hits(kubectl: Kubectl, pod: Object) -> int:
    return int(agent_figures(kubectl, pod).get(DISK_HITS, 0))


def _counted(kubectl: Kubectl, pod: Object, least: int) -> int:
    """Blocks loaded from disk and used: `least`, or what there is a while after the answer."""
    end = time.monotonic() + COUNTED_S
    while (blocks := _disk_hits(kubectl, pod)) < least and time.monotonic() < end:
        time.sleep(POLL_S)
    return blocks


def _written(kubectl: Kubectl, engine: Engine) -> bool:
    now = agent_figures(kubectl, engine.pod())
    return 0 < now[STORED] <= now.get(WRITTEN, 0)
