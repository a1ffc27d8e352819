"""A pod goes and another comes on the same node: what lay on the node's disk is found."""

from __future__ import annotations

from rig.engine import BLOCK_TOKENS, Engine, prompt, reusable_tokens
from rig.figures import agent_figures
from rig.kubectl import Kubectl, until
from rig.pool import Pool
from rig.warmth import HITS, figure, find, keep
from rig.workloads import NODE, disk_folder, engine_deployment, example
from waits import ON_DISK_S, POD_RUNNING_S

TOKENS = 1500
"""The last block is not full, and is not kept."""
BLOCKS = TOKENS // BLOCK_TOKENS
SEEDS = (21, 22, 23)
WRITTEN = 'onggi_moved_bytes_total{direction="in",tier="disk"}'
STORED = 'onggi_moved_bytes_total{direction="in",tier="host"}'


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

    keep(kubectl, engine, 20, TOKENS)
    cold = [(seed, keep(kubectl, engine, seed, TOKENS)) for seed in SEEDS]
    until("every block on disk", lambda: _written(kubectl, engine), ON_DISK_S)

    engine.delete_pod()
    second = engine.ready()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["nodeName"] == NODE

    engine.ask(prompt(seed=29, tokens=TOKENS))
    assert figure(kubectl, engine, HITS["disk"]) == 0
    found = find(kubectl, engine, cold, TOKENS, "disk")
    assert found.warm.cached_tokens == reusable_tokens(TOKENS) == BLOCKS * BLOCK_TOKENS
    assert found.warm.tokens == found.cold.tokens
    assert found.warm.first_token_s < found.cold.first_token_s
    print(f"first token: {found.cold.first_token_s:.3f} s, warm {found.warm.first_token_s:.3f} s")
    hits = found.hit_blocks
    status = pool.until("disk hits", lambda s: s.get("hits", {}).get("diskBlocks", 0) >= hits)
    assert status["hits"]["diskBlocks"] == hits
    assert status["tokensSaved"] >= hits * BLOCK_TOKENS


def _written(kubectl: Kubectl, engine: Engine) -> bool:
    now = agent_figures(kubectl, engine.pod())
    return 0 < now[STORED] <= now.get(WRITTEN, 0)
