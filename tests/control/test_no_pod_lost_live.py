"""Whatever a namespace allows: who is admitted without an agent is admitted with the annotation
too, with an agent or with the reason why not. Namespaces and pods are drawn from a seed."""

import copy
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

SEED = int(os.environ.get("ONGGI_SEED", "17"))
NAMESPACES = 30
PODS_EACH = 4
STATUS = "onggi.dev/status"
SYNC_S = 20.0
RESOURCES = {
    "cpu": ["50m", "100m", "250m", "500m", "1", "2", "4"],
    "memory": ["64Mi", "128Mi", "512Mi", "1Gi", "1200Mi", "2Gi", "4Gi", "8Gi"],
    "ephemeral-storage": ["64Mi", "1Gi", "1100Mi", "4Gi", "20Gi"],
}
SCOPES = [None, None, "NotBestEffort", "BestEffort", "NotTerminating", "Terminating"]


def between(dice: random.Random, name: str, low: int = 0) -> int:
    return dice.randrange(low, len(RESOURCES[name]))


def limit_range(dice: random.Random) -> dict[str, Any]:
    """One that the API server takes: min <= default <= max."""
    kind = dice.choice(["Container", "Container", "Pod"])
    item: dict[str, Any] = {"type": kind}
    for name in dice.sample(list(RESOURCES), dice.randrange(1, 4)):
        sizes = RESOURCES[name]
        least = dice.randrange(2)
        most = between(dice, name, len(sizes) // 2)
        chosen = dice.sample(["min", "max", "default", "ratio"], dice.randrange(1, 3))
        if "min" in chosen:
            item.setdefault("min", {})[name] = sizes[least]
        if "max" in chosen:
            item.setdefault("max", {})[name] = sizes[most]
        if "default" in chosen and kind == "Container":
            item.setdefault("default", {})[name] = sizes[most]
            item.setdefault("defaultRequest", {})[name] = sizes[least]
        if "ratio" in chosen:
            item.setdefault("maxLimitRequestRatio", {})[name] = dice.choice(["2", "10", "40"])
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "drawn"},
        "spec": {"limits": [item]},
    }


def quota(dice: random.Random) -> dict[str, Any]:
    scope = dice.choice(SCOPES)
    hard: dict[str, str] = {"pods": str(dice.choice([1, 5]))}
    if scope != "BestEffort":
        for name in dice.sample(list(RESOURCES), dice.randrange(0, 3)):
            prefix = dice.choice(["requests.", "limits."])
            hard[prefix + name] = dice.choice(RESOURCES[name][-3:])
    spec: dict[str, Any] = {"hard": hard}
    if scope:
        spec["scopes"] = [scope]
        if scope in ("NotBestEffort", "Terminating", "NotTerminating"):
            hard = {k: v for k, v in hard.items() if "ephemeral" not in k}
            spec["hard"] = hard
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "drawn"},
        "spec": spec,
    }


def container(dice: random.Random, name: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "image": f"registry.local/{name}:1"}
    resources: dict[str, Any] = {}
    whole = dice.random() < 0.75  # most pods are to pass as they are
    for resource in RESOURCES if whole else dice.sample(list(RESOURCES), dice.randrange(3)):
        low = between(dice, resource)
        if whole or dice.random() < 0.7:
            resources.setdefault("requests", {})[resource] = RESOURCES[resource][low]
        if whole or dice.random() < 0.7:
            high = RESOURCES[resource][between(dice, resource, low)]
            resources.setdefault("limits", {})[resource] = high
    if resources:
        made["resources"] = resources
    return made


def pod(dice: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "serviceAccountName": "default",
        "containers": [container(dice, "vllm")],
        "restartPolicy": dice.choice(["Always", "Never"]),
    }
    if dice.random() < 0.4:
        spec["containers"].insert(dice.randrange(2), container(dice, "proxy"))
    if dice.random() < 0.4:
        spec["initContainers"] = [container(dice, "prepare")]
        if dice.random() < 0.5:
            spec["initContainers"][0]["restartPolicy"] = "Always"
    if dice.random() < 0.3:
        spec["activeDeadlineSeconds"] = 600
    if dice.random() < 0.3:
        spec["securityContext"] = {"fsGroup": 2000}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}


def pool(dice: random.Random) -> dict[str, Any]:
    most = dice.choice(["256Mi", "1Gi", "3Gi"])
    tiers: list[dict[str, Any]] = [
        {"type": "Memory", "memory": {"min": dice.choice(["64Mi", most]), "max": most}}
    ]
    disk = dice.choice([None, {}, {"medium": "ClaimTemplate", "claimTemplate": {}}])
    if disk is not None:
        tiers.append({"type": "LocalDisk", "localDisk": {"max": "1Gi", **disk}})
    return {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": "chat"},
        "spec": {"tiers": tiers},
    }


@pytest.fixture(scope="module")
def cluster(installed: Any, apiserver: Any) -> Iterator[Any]:
    installed.refused = apiserver.Refused
    installed.namespace("drawn-start")
    with installed.process("webhook") as part:
        installed.part = part
        body = pod(random.Random(0))
        body["metadata"]["annotations"] = {"onggi.dev/pool": "none"}
        path = "/api/v1/namespaces/drawn-start/pods?dryRun=All"
        deadline = time.monotonic() + SYNC_S
        while STATUS not in installed.server.request("POST", path, body)["metadata"]["annotations"]:
            assert time.monotonic() < deadline, "the webhook is never called"
            time.sleep(0.1)
        yield installed


def made_or_not(cluster: Any, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
    """What was made in a dry run, or the refusal."""
    try:
        made: dict[str, Any] = cluster.server.request("POST", path, body)
    except cluster.refused as refusal:
        return str(refusal)
    return made


@pytest.mark.timeout(300)
def test_no_pod_is_lost_to_its_agent(cluster: Any) -> None:
    dice = random.Random(SEED)
    outcomes: dict[str, int] = {}
    for number in range(NAMESPACES):
        namespace = f"drawn-{number}"
        cluster.namespace(namespace)
        rules = [limit_range(dice)] if dice.random() < 0.7 else []
        if dice.random() < 0.6 or not rules:
            rules.append(quota(dice))
        _set_rules(cluster, namespace, rules)
        pools = f"/apis/onggi.dev/v1alpha1/namespaces/{namespace}/kvcachepools"
        cluster.server.request("POST", pools, pool(dice))
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        for _ in range(PODS_EACH):
            plain = pod(dice)
            if isinstance(made_or_not(cluster, path, plain), str):
                outcomes["refused as it is"] = outcomes.get("refused as it is", 0) + 1
                continue
            status = _with_agent(cluster, path, plain, rules)
            word = status.split(": ")[0 if status.startswith("injected") else 1]
            outcomes[word] = outcomes.get(word, 0) + 1
    print(outcomes)
    assert outcomes["injected"] >= 5, outcomes
    assert outcomes.get("LimitRange", 0) + outcomes.get("Quota", 0) >= 3, outcomes


def _set_rules(cluster: Any, namespace: str, rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        plural = {"LimitRange": "limitranges", "ResourceQuota": "resourcequotas"}[rule["kind"]]
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        made = cluster.server.request("POST", path, rule)
        if rule["kind"] == "ResourceQuota":  # counted by a controller in a cluster
            hard = rule["spec"]["hard"]
            made["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            cluster.server.request("PUT", f"{path}/drawn/status", made)


def _with_agent(cluster: Any, path: str, plain: dict[str, Any], rules: list[dict[str, Any]]) -> str:
    """The status of the same pod with the annotation. Rules reach the webhook a moment later."""
    body = copy.deepcopy(plain)
    body["metadata"]["annotations"] = {"onggi.dev/pool": "chat"}
    deadline = time.monotonic() + SYNC_S
    while isinstance(made := made_or_not(cluster, path, body), str):
        assert time.monotonic() < deadline, (
            f"seed {SEED}: admitted without an agent, refused with one: {made}\n{plain}\n{rules}"
        )
        time.sleep(0.2)
    status: str = made["metadata"]["annotations"][STATUS]
    return status
