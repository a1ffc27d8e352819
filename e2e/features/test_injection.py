"""What a pod is given, and what keeps it from being given anything: said on the pod itself."""

from __future__ import annotations

import pytest
from rig.engine import Engine
from rig.kubectl import Kubectl, Object, annotation, names_of, until
from rig.pool import Pool
from rig.workloads import sleeper
from waits import POD_RUNNING_S

STATUS = "onggi.dev/status"


@pytest.fixture(scope="module", autouse=True)
def _engine_starts_meanwhile(starting_engine: Engine) -> None:
    """None of these tests needs it; those after them do."""


def untouched(pod: Object) -> bool:
    spec = pod["spec"]
    return (
        names_of(spec.get("initContainers")) == []
        and names_of(spec["containers"]) == ["vllm"]
        and not any("onggi" in volume["name"] for volume in spec.get("volumes") or ())
        and "env" not in spec["containers"][0]
    )


def running(kubectl: Kubectl, name: str) -> Object:
    def look() -> Object | None:
        pod = kubectl.get("pod", name)
        return pod if pod["status"]["phase"] == "Running" else None

    pod: Object = until(f"pod {name} running", look, POD_RUNNING_S)
    return pod


def test_a_pod_that_asks_gets_the_agent_first_and_its_command_stays(
    kubectl: Kubectl, pool: Pool
) -> None:
    pod = kubectl.dry_run(sleeper("asks", {"onggi.dev/pool": "chat"}))
    first, *others = pod["spec"]["initContainers"]
    assert first["name"] == "onggi-agent"
    assert first["restartPolicy"] == "Always"
    assert "startupProbe" in first
    assert names_of(others) == ["onggi-client"]
    (engine,) = pod["spec"]["containers"]
    assert engine["command"] == ["sleep", "86400"]
    assert {entry["name"]: entry["value"] for entry in engine["env"]} == {
        "PYTHONPATH": "/opt/onggi",
        "ONGGI_SOCKET": "/run/onggi/agent.sock",
    }
    assert (annotation(pod, STATUS) or "").startswith("injected: ")
    assert pod["spec"]["securityContext"]["supplementalGroups"] == [64646]
    assert "fsGroup" not in pod["spec"]["securityContext"]


def test_a_restricted_namespace_admits_an_injected_pod(kubectl: Kubectl, pool: Pool) -> None:
    name = "onggi-e2e-restricted"
    there = kubectl.elsewhere(name)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    there.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    try:
        there.apply(
            {
                "apiVersion": "onggi.dev/v1alpha1",
                "kind": "KVCachePool",
                "metadata": {"name": "chat"},
                "spec": {},
            }
        )
        asked = sleeper("asks", {"onggi.dev/pool": "chat"})
        pod = until("injection", lambda: _if_injected(there, asked), POD_RUNNING_S)
        assert names_of(pod["spec"]["initContainers"]) == ["onggi-agent", "onggi-client"]
    finally:
        there("delete", "namespace", name, "--wait=false")


def _if_injected(kubectl: Kubectl, asked: Object) -> Object | None:
    """A pool that was just made reaches the webhook by a watch, a moment later."""
    if kubectl.find("serviceaccount", "default") is None:
        return None
    pod = kubectl.dry_run(asked)
    return pod if (annotation(pod, STATUS) or "").startswith("injected: ") else None


def test_a_pod_without_the_annotation_is_untouched(kubectl: Kubectl, pool: Pool) -> None:
    kubectl.apply(sleeper("plain", {}))
    pod = running(kubectl, "plain")
    assert untouched(pod)
    assert annotation(pod, STATUS) is None


def test_a_pod_that_opts_out_is_untouched(kubectl: Kubectl, pool: Pool) -> None:
    kubectl.apply(sleeper("opts-out", {"onggi.dev/pool": "chat", "onggi.dev/inject": "false"}))
    pod = running(kubectl, "opts-out")
    assert untouched(pod)


def test_a_flag_of_the_users_wins_and_the_pod_says_so(kubectl: Kubectl, pool: Pool) -> None:
    command = ["sh", "-c", "exec sleep 86400", "sh", "--kv-transfer-config={}"]
    kubectl.apply(sleeper("conflict", {"onggi.dev/pool": "chat"}, command=command))
    pod = running(kubectl, "conflict")
    assert untouched(pod)
    assert pod["spec"]["containers"][0]["command"] == command
    status = annotation(pod, STATUS) or ""
    assert status.startswith("skipped: ConnectorSet: "), status
    assert "--kv-transfer-config" in status
    seen = pool.until("the skipped pod", lambda s: bool(s.get("skipped")))
    assert [(entry["pod"], entry["reason"]) for entry in seen["skipped"]] == [
        ("conflict", "ConnectorSet")
    ]
    kubectl.delete("pod", "conflict", POD_RUNNING_S)


def test_a_pod_that_asks_for_no_pool_there_is_starts_and_says_so(
    kubectl: Kubectl, pool: Pool
) -> None:
    kubectl.apply(sleeper("typo", {"onggi.dev/pool": "chta"}))
    pod = running(kubectl, "typo")
    assert untouched(pod)
    status = annotation(pod, STATUS) or ""
    assert status.startswith("skipped: UnknownPool: "), status
