"""Quotas and warm gates with the chart's own rights: webhook, controller and a real API server."""

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from onggi_core.heartbeat import dump_heartbeat

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
SPACE = "team-tenancy"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POOLS = f"/apis/onggi.dev/v1alpha1/namespaces/{SPACE}/kvcachepools"
MERGE = "application/merge-patch+json"
NODE = "tenancy-1"
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def cluster(
    server: Any, render: Any, installed_class: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    documents = render("operator.warmGates=true", "operator.statusIntervalSeconds=1")
    installed = installed_class(server, documents, tmp_path_factory.mktemp("tenancy"))
    installed.namespace(SPACE)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    server.apply("/api/v1/nodes", node)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply(f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    with installed.process("webhook") as webhook, installed.process("controller"):
        installed.webhook = webhook
        make_pool(server, "probe")
        wait("the webhook is asked", lambda: stamp(make_pod(server, "probe", "?dryRun=All")))
        yield installed


def make_pool(server: Any, name: str, **spec: Any) -> None:
    kind = {"apiVersion": "onggi.dev/v1alpha1", "kind": "KVCachePool"}
    server.apply(POOLS, {**kind, "metadata": {"name": name}, "spec": spec})


def make_pod(server: Any, pool: str, query: str = "", *, node: str | None = None) -> Any:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{pool}-", "annotations": {"onggi.dev/pool": pool}},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v1"}],
        },
    }
    return server.request("POST", PODS + query, body)


def stamp(pod: Any) -> str:
    return str(pod["metadata"]["annotations"].get("onggi.dev/status", ""))


def wait(what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)
    return answer


def read(server: Any, path: str, name: str) -> Any:
    return server.request("GET", f"{path}/{name}")


def test_a_quota_outlives_the_webhook_and_frees_what_pods_leave(cluster: Any) -> None:
    server = cluster.server
    tiers = [{"type": "Memory", "memory": {"min": "64Mi", "max": "256Mi"}}]
    make_pool(server, "bounded", tiers=tiers, quota={"memory": "192Mi"})
    made = [make_pod(server, "bounded") for _ in range(4)]
    words = [stamp(pod).split(":")[0] for pod in made]
    assert words == ["injected"] * 3 + ["skipped"]
    assert "skipped: PoolQuota: pool bounded gives its pods 192Mi" in stamp(made[3])
    status = wait(
        "a status that counts them",
        lambda: (
            (found := read(server, POOLS, "bounded")["status"]).get("quota")
            and found["pods"]["injected"] == 3
            and found["quota"]["used"]["memoryBytes"] == 192 << 20
            and found
        ),
    )
    assert status["quota"]["hard"] == {"memoryBytes": 192 << 20}
    cluster.webhook.stop()
    cluster.webhook.start()
    assert stamp(make_pod(server, "bounded")).startswith("skipped: PoolQuota: ")
    gone = made[0]["metadata"]["name"]
    server.request("DELETE", f"{PODS}/{gone}?gracePeriodSeconds=0")
    dry = "?dryRun=All"
    wait("room for another", lambda: "injected" in stamp(make_pod(server, "bounded", dry)))
    assert stamp(make_pod(server, "bounded")).startswith("injected: ")


def warm_condition(server: Any, pod: Any) -> tuple[str, str] | None:
    conditions = read(server, PODS, pod["metadata"]["name"])["status"].get("conditions") or ()
    found = [one for one in conditions if one["type"] == "onggi.dev/warm"]
    return (found[0]["status"], found[0]["reason"]) if found else None


def gated_pod(cluster: Any, pool: str) -> Any:
    pod = make_pod(cluster.server, pool, node=NODE)
    assert pod["spec"]["readinessGates"] == [{"conditionType": "onggi.dev/warm"}]
    return pod


def test_a_gate_opens_when_the_agent_reports(cluster: Any, status_kit: Any) -> None:
    server = cluster.server
    make_pool(server, "gated", lifecycle={"warmGate": {"until": "DiskAdopted"}})
    warm, cold = gated_pod(cluster, "gated"), gated_pod(cluster, "gated")

    def opened() -> Any:
        """It reports as agents do, again and again: the first one may come before the pool."""
        report(cluster, status_kit, warm)
        return warm_condition(server, warm)

    wait("the gate of the one that reports", opened)
    assert warm_condition(server, warm) == ("True", "Warm")
    assert warm_condition(server, cold) is None
    took = {"status": {"startTime": LONG_AGO}}
    server.request("PATCH", f"{PODS}/{cold['metadata']['name']}/status", took, kind=MERGE)
    wait("the gate of the one that never does", lambda: warm_condition(server, cold))
    assert warm_condition(server, cold) == ("True", "TimedOut")


def test_gates_open_when_the_pool_asks_for_none_any_more(cluster: Any) -> None:
    server = cluster.server
    make_pool(server, "was-gated", lifecycle={"warmGate": {"until": "RampedUp"}})
    pod = gated_pod(cluster, "was-gated")
    off = {"spec": {"lifecycle": {"warmGate": {"until": "Off"}}}}
    server.request("PATCH", f"{POOLS}/was-gated", off, kind=MERGE)
    wait("an open gate", lambda: warm_condition(server, pod) == ("True", "GateOff"))


def report(cluster: Any, status_kit: Any, pod: Any) -> None:
    meta = pod["metadata"]
    beat = replace(
        status_kit.BEAT,
        pod=meta["name"],
        pod_uid=meta["uid"],
        namespace=SPACE,
        pool="gated",
        node=NODE,
    )
    token = cluster.token(SPACE, "default", audience="onggi", pod=pod)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", cluster.https_ports["controller"], timeout=20,
        context=ssl._create_unverified_context(),
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {token}"}
    connection.request("POST", "/v1/heartbeat", body=dump_heartbeat(beat), headers=headers)
    answer = connection.getresponse()
    assert answer.status in (200, 421, 503), answer.read()
    connection.close()
