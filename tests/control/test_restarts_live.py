"""Missed pods are evicted by a controller that may, within disruption budgets."""

import time
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

SPACE = "team-restarts"
PATIENCE_S = 60.0


def make_pod(server: Any, name: str, *, owned: bool = True, status: str = "") -> None:
    annotations = {"onggi.dev/pool": "chat"}
    if status:
        annotations["onggi.dev/status"] = status
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{name}-set",
        "uid": f"00000000-0000-4000-8000-{len(name):012}",
        "controller": True,
    }
    meta = {
        "name": name,
        "annotations": annotations,
        "labels": {"app": name},
        "ownerReferences": [owner] if owned else [],
    }
    spec = {
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "vllm", "image": "vllm"}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    server.request("POST", f"/api/v1/namespaces/{SPACE}/pods", body)


def names(server: Any) -> set[str]:
    found = server.request("GET", f"/api/v1/namespaces/{SPACE}/pods")["items"]
    return {pod["metadata"]["name"] for pod in found}


def test_a_missed_pod_is_evicted_and_a_budget_and_a_bare_pod_are_kept(
    server: Any, render: Any, installed_class: Any, tmp_path: Any
) -> None:
    installed = installed_class(server, render("operator.restartMissed=true"), tmp_path)
    installed.namespace(SPACE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply(f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    server.apply(
        f"/apis/onggi.dev/v1alpha1/namespaces/{SPACE}/kvcachepools",
        {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCachePool",
            "metadata": {"name": "chat"},
            "spec": {},
        },
    )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "held"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
    }
    server.apply(f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets", budget)
    make_pod(server, "held")
    make_pod(server, "bare", owned=False)
    make_pod(server, "missed")
    running = {"status": {"phase": "Running"}}
    # A budget guards pods that run; one that never started may always go.
    server.request(
        "PATCH",
        f"/api/v1/namespaces/{SPACE}/pods/held/status",
        running,
        kind="application/merge-patch+json",
    )
    time.sleep(1.1)  # creation times have whole seconds
    make_pod(server, "injected", status="injected: abc: pool chat")
    with installed.process("controller") as part:
        deadline = time.monotonic() + PATIENCE_S
        while "missed" in names(server):
            assert time.monotonic() < deadline, part.log.read_text()[-3000:]
            time.sleep(0.2)
        deadline = time.monotonic() + PATIENCE_S
        while "REFUSED" not in part.log.read_text():
            assert time.monotonic() < deadline, part.log.read_text()[-3000:]
            time.sleep(0.2)
        assert names(server) == {"held", "bare", "injected"}
