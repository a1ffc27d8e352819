"""Builders for the controller's planners: pools, pods and reports."""

from dataclasses import replace
from typing import Any

from onggi_core.heartbeat import Heartbeat, Lookups, Mode, TierBlocks, TierBytes
from onggi_operator.inject.outcome import Stamp
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import World

STARTED = "2026-01-01T00:00:00Z"
BEFORE = "2025-12-31T00:00:00Z"
AFTER = "2026-01-01T01:00:00Z"

INJECTED = Stamp(True, "abc", "pool chat")
SKIPPED = Stamp(False, "ConnectorSet", "container vllm sets it itself")

BEAT = Heartbeat(
    pool="chat",
    namespace="team-a",
    pod="one",
    pod_uid="uid-one",
    node="n1",
    epoch="0123456789abcdef",
    mode=Mode.ACTIVE,
    capacity=TierBytes(1 << 30, 0),
    used=TierBytes(0, 0),
    arena_ready_bytes=1 << 30,
    hits=TierBlocks(0, 0),
    lookups=Lookups(0, 0, 0),
    tokens_saved=0,
    evictions=0,
    errors={},
    fingerprints=("ab" * 16,),
    clients=1,
)


def pod(name: str, stamp: Stamp | None = INJECTED, **changes: Any) -> PodView:
    view = PodView(
        "team-a", name, f"uid-{name}", "chat", AFTER, stamp, running=True, deleting=False
    )
    return replace(view, **changes)


def beat(pod: str = "one", **changes: Any) -> Heartbeat:
    return replace(BEAT, pod=pod, pod_uid=f"uid-{pod}", **changes)


def body(**changes: Any) -> dict[str, Any]:
    """A pool as the API server returns it."""
    spec = {
        "mode": "Active",
        "engine": {"kind": "vLLM", "configure": "Auto"},
        "identity": {},
        "tiers": [{"type": "Memory", "memory": {"max": "1Gi", "hugepages": "Auto"}}],
        "eviction": {"policy": "Adaptive"},
        "placement": {
            "rebalance": "Auto",
            "interval": "1m",
            "step": "512Mi",
            "threshold": 5,
            "scheduling": "Prefer",
            "resize": "Off",
        },
        "quota": {},
        "lifecycle": {
            "rampUp": "1m",
            "drain": {"deadline": "10s"},
            "warmGate": {"until": "Off", "timeout": "5m"},
        },
        "failure": {"diskDeadline": "2s"},
        "security": {"runAsUser": 64646, "group": 64646},
        "injection": {
            "enabled": True,
            "updatePolicy": "Latest",
            "resources": {"cpuRequest": "100m", "cpuLimit": "1", "memoryOverhead": "192Mi"},
        },
    }
    spec.update(changes.pop("spec", {}))
    meta = {"namespace": "team-a", "name": "chat", "uid": "pool-1", "generation": 1}
    return {"metadata": {**meta, **changes.pop("metadata", {})}, "spec": spec, **changes}


def world(*pods: PodView, pool: dict[str, Any] | None = None) -> World:
    found = World({(one.namespace, one.name): one for one in pods}, started=STARTED, started_s=0.0)
    found.see_pool(pool or body())
    return found
