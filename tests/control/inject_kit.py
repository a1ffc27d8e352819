"""Builders for injection tests: a pod, a pool, and a patch applied as the API server applies it."""

import base64
import copy
import json
from dataclasses import replace
from typing import Any

from onggi_core.heartbeat import Mode
from onggi_core.policy.names import PolicyName
from onggi_operator.inject.containers import Installation
from onggi_operator.inject.limits import Limits, Scope
from onggi_operator.inject.namespace import Namespace
from onggi_operator.inject.outcome import (
    Injected,
    Outcome,
    Skipped,
    Untouched,
    read_status,
    skipped_status,
)
from onggi_operator.inject.plan import plan_injection
from onggi_operator.inject.quota import Quota, read_quota
from onggi_operator.inject.request import read_request
from onggi_operator.lifecycle import Lifecycle, WarmGate
from onggi_operator.placement import Placement, Rebalance, Resize, Scheduling
from onggi_operator.pool import (
    Configure,
    DiskTier,
    Engine,
    EngineKind,
    Failure,
    Hugepages,
    Identity,
    Injection,
    Medium,
    MemoryTier,
    Pool,
    Security,
    UpdatePolicy,
)
from onggi_operator.tenancy import NOTHING_USED, PoolQuota, PoolUse
from onggi_operator.webhook.review import Review, answer

__all__ = [
    "EngineKind", "Identity", "Injected", "Limits", "MemoryTier", "Review", "Scope", "Security",
    "Untouched", "UpdatePolicy", "answer", "read_quota", "read_status", "skipped_status",
]  # fmt: skip

Several = tuple[Limits, ...]
Quotas = tuple[Quota, ...]
GI = 1024**3

INSTALL = Installation(
    agent_image="onggi/agent:1",
    pull_policy="IfNotPresent",
    log_level="info",
    operator_url="https://onggi-operator.onggi-system.svc:8443",
    ca_pem="PEM",
)

POOL = Pool(
    namespace="team-a",
    name="main",
    uid="u1",
    generation=1,
    mode=Mode.ACTIVE,
    engine=Engine(EngineKind.VLLM, Configure.AUTO, None),
    identity=Identity(None, None),
    memory=MemoryTier(GI, GI),
    hugepages=Hugepages.AUTO,
    policy=PolicyName.ADAPTIVE,
    disk=None,
    placement=Placement(Rebalance.AUTO, 60, 512 * 1024**2, 5, Scheduling.PREFER, Resize.OFF),
    quota=PoolQuota(),
    lifecycle=Lifecycle(60, 10, 0, WarmGate()),
    failure=Failure(2),
    security=Security(64646, 64646),
    injection=Injection(
        enabled=True,
        agent_image=None,
        update_policy=UpdatePolicy.LATEST,
        revision=None,
        cpu_request="100m",
        cpu_limit="1",
        overhead_bytes=192 * 1024**2,
    ),
    warm_nodes=(),
    room_nodes=(),
)

EMPTY_DIR = DiskTier(4 * GI, Medium.EMPTY_DIR, None, None)
HOST_PATH = DiskTier(4 * GI, Medium.HOST_PATH, "/var/lib/onggi", None)


CLAIM = DiskTier(4 * GI, Medium.CLAIM_TEMPLATE, None, None)


def kept_for(seconds: int) -> Lifecycle:
    return replace(POOL.lifecycle, disk_retention_s=seconds)


def manual() -> Engine:
    return replace(POOL.engine, configure=Configure.MANUAL)


def engine_in(container: str) -> Engine:
    return replace(POOL.engine, container=container)


def injection(**changes: Any) -> Injection:
    return replace(POOL.injection, **changes)


def engine(name: str = "engine", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "vllm/vllm-openai:v0.32", **fields}


def pod(
    *containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod as a ReplicaSet's controller sends it: without name and namespace."""
    return {
        "metadata": {
            "generateName": "chat-6d5f7c-",
            "annotations": {"onggi.dev/pool": "main", **(annotations or {})},
        },
        "spec": {"containers": list(containers) or [engine()], **spec},
    }


def plan(
    body: dict[str, Any],
    pool: Pool = POOL,
    limits: Several = (),
    quotas: Quotas = (),
    pod_security: str | None = None,
    install: Installation = INSTALL,
    promised: PoolUse = NOTHING_USED,
    **changes: Any,
) -> Outcome:
    asked = read_request(body)
    if isinstance(asked, (Skipped, Untouched)):
        return asked
    where = Namespace("team-a", limits, quotas, pod_security)
    return plan_injection(body, where, asked, replace(pool, **changes), install, promised)


def inject(
    body: dict[str, Any],
    pool: Pool = POOL,
    limits: Several = (),
    quotas: Quotas = (),
    **changes: Any,
) -> dict[str, Any]:
    """The pod after its patch; an assertion when it was not injected."""
    outcome = plan(body, pool, limits, quotas, **changes)
    assert isinstance(outcome, Injected), outcome
    return patched(body, outcome)


def patched(body: dict[str, Any], outcome: Injected) -> dict[str, Any]:
    after = copy.deepcopy(body)
    for operation in outcome.patch:
        _apply(after, operation["op"], operation["path"], copy.deepcopy(operation["value"]))
    return after


def _apply(document: Any, verb: str, path: str, value: Any) -> None:
    """RFC 6902 `add` and `replace`, the two that are used."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    at = document
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if isinstance(at, dict):
        assert verb == "add" or last in at, path
        at[last] = value
    elif verb == "replace":
        at[int(last)] = value
    else:
        at.insert(len(at) if last == "-" else int(last), value)


def skipped(body: dict[str, Any], pool: Pool = POOL, **changes: Any) -> tuple[str, str]:
    """Reason and message; an assertion when the pod was not skipped."""
    outcome = plan(body, pool, **changes)
    assert isinstance(outcome, Skipped), outcome
    return outcome.reason.value, outcome.message


def agent(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["initContainers"][0]
    assert found["name"] == "onggi-agent"
    return found


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container.get("env", ())}


def decoded(patch: str) -> Any:
    """A response's patch."""
    return json.loads(base64.b64decode(patch))
