"""Requests that follow grants: a controller with the chart's own rights and a real API server. The
test is agent and kubelet."""

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from onggi_core.heartbeat import TierBytes, dump_heartbeat, parse_directive
from onggi_core.quantity import parse_quantity

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
SPACE = "team-resize"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POOLS = f"/apis/onggi.dev/v1alpha1/namespaces/{SPACE}/kvcachepools"
QUOTAS = f"/api/v1/namespaces/{SPACE}/resourcequotas"
MERGE = "application/merge-patch+json"
NODE = "resize-1"
MIB = 1 << 20
FLOOR, CEILING, OVERHEAD = 64 * MIB, 256 * MIB, 192 * MIB


@pytest.fixture(scope="module")
def cluster(
    server: Any, render: Any, installed_class: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    documents = render("operator.resizeRequests=true", "operator.statusIntervalSeconds=1")
    installed = installed_class(server, documents, tmp_path_factory.mktemp("resize"))
    installed.namespace(SPACE)
    server.apply("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    status = {
        "allocatable": {"memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"},
        "capacity": {"memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
    }
    server.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, kind=MERGE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply(f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    with installed.process("controller"):
        yield installed


@pytest.fixture(autouse=True)
def pool(cluster: Any) -> None:
    spec = {
        "tiers": [{"type": "Memory", "memory": {"min": "64Mi", "max": "256Mi"}}],
        "lifecycle": {"rampUp": "0s"},
        "placement": {"interval": "10s", "resize": "Requests"},
    }
    kind = {"apiVersion": "onggi.dev/v1alpha1", "kind": "KVCachePool"}
    cluster.server.apply(POOLS, {**kind, "metadata": {"name": "chat"}, "spec": spec})


ASK_AGAIN = (421, 503)


class Agent:
    """A pod whose agent is the test; `held` is what it says that it holds."""

    def __init__(self, cluster: Any, kit: Any, name: str) -> None:
        self.cluster, self.server, self.held, self.said = cluster, cluster.server, FLOOR, 0
        self.path = f"{PODS}/{name}"
        self.pod = self.server.request("POST", PODS, pod_of(name))
        self.token = cluster.token(SPACE, "default", audience="onggi", pod=self.pod)
        self.beat = replace(
            kit.BEAT, pod=name, pod_uid=self.pod["metadata"]["uid"], namespace=SPACE, node=NODE
        )

    def told(self) -> int | None:
        """One report, and what it is answered."""
        self.said += 1
        held = TierBytes(self.held, 0)
        beat = replace(self.beat, sequence=self.said, capacity=held, held=held)
        status, body = self._post(dump_heartbeat(beat))
        while status in ASK_AGAIN:  # a controller that does not lead yet
            time.sleep(0.1)
            status, body = self._post(dump_heartbeat(beat))
        assert status == 200, body
        return parse_directive(body).host_bytes

    def _post(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.cluster.https_ports["controller"], timeout=20,
            context=ssl._create_unverified_context(),
        )  # fmt: skip
        headers = {"Authorization": f"Bearer {self.token}"}
        connection.request("POST", "/v1/heartbeat", body=body, headers=headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer.status, said

    def asked(self) -> int:
        (agent,) = self.server.request("GET", self.path)["spec"]["initContainers"]
        return parse_quantity(agent["resources"]["requests"]["memory"])

    def give(self, size: int) -> None:
        """As a kubelet tells what it has taken in."""
        self._kubelet(size, [])

    def put_off(self, size: int, word: str) -> None:
        told = {"type": "PodResizePending", "status": "True", "reason": word, "message": "no room"}
        self._kubelet(size, [told])

    def _kubelet(self, size: int, conditions: list[Any]) -> None:
        status = {
            "name": "onggi-agent", "image": "agent", "imageID": "agent", "ready": True,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "resources": {"requests": {"memory": str(size)}},
        }  # fmt: skip
        body = {"status": {"initContainerStatuses": [status], "conditions": conditions}}
        self.server.request("PATCH", f"{self.path}/status", body, kind=MERGE)

    def state(self) -> str | None:
        """What the KVCacheNode says of its request."""
        found = self.server.request("GET", "/apis/onggi.dev/v1alpha1/kvcachenodes")["items"]
        grants = [
            grant
            for node in found
            for grant in (node.get("status") or {}).get("grants") or ()
            if grant["podUID"] == self.beat.pod_uid
        ]
        return grants[0].get("resize") if grants else None

    def delete(self) -> None:
        self.server.request("DELETE", f"{self.path}?gracePeriodSeconds=0")


def pod_of(name: str) -> dict[str, Any]:
    env = {"ONGGI_AGENT_MEMORY": FLOOR, "ONGGI_AGENT_MEMORY_MAX": CEILING}
    agent = {
        "name": "onggi-agent",
        "image": "agent",
        "restartPolicy": "Always",
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "resources": {
            "requests": {"memory": str(FLOOR + OVERHEAD)},
            "limits": {"memory": str(CEILING + OVERHEAD)},
        },
    }
    marks = {"onggi.dev/pool": "chat", "onggi.dev/status": "injected: abc: pool chat"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": marks},
        "spec": {
            "nodeName": NODE,
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 0,
            "initContainers": [agent],
            "containers": [{"name": "vllm", "image": "vllm"}],
        },
    }


@pytest.fixture
def agent(cluster: Any, status_kit: Any) -> Iterator[Callable[[str], Agent]]:
    made: list[Agent] = []

    def make(name: str) -> Agent:
        made.append(Agent(cluster, status_kit, name))
        return made[-1]

    yield make
    for one in made:
        one.delete()


def wait(what: str, found: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)


def test_a_request_is_raised_before_the_agent_grows_and_lowered_after_it_shrank(
    cluster: Any, agent: Callable[[str], Agent]
) -> None:
    one = agent("grows")

    def asked_and_told() -> tuple[int, int | None]:
        told = one.told()
        return one.asked(), told

    raised = CEILING + OVERHEAD - MIB
    wait("a raised request", lambda: asked_and_told()[0] == raised)
    assert one.told() == FLOOR, "the kubelet has not taken it in yet"
    wait("to be told that", lambda: one.state() == "InProgress")
    one.give(raised)
    wait("growth", lambda: one.told() == CEILING)
    one.held = CEILING
    wait("to be told that", lambda: one.told() and one.state() == "InStep")
    less = {"tiers": [{"type": "Memory", "memory": {"min": "64Mi", "max": "128Mi"}}]}
    cluster.server.request("PATCH", f"{POOLS}/chat", {"spec": less}, kind=MERGE)
    wait("a shrink", lambda: one.told() == 128 * MIB)
    for _ in range(4):
        time.sleep(1)
        assert (one.told(), one.asked()) == (128 * MIB, raised), "all of it is still held"
    one.held = 128 * MIB
    wait("a lowered request", lambda: asked_and_told()[0] == 128 * MIB + OVERHEAD)


@pytest.mark.parametrize("word", ["Deferred", "Infeasible"])
def test_what_a_node_has_no_room_for_is_told_and_taken_back(
    agent: Callable[[str], Agent], word: str
) -> None:
    one = agent(f"put-off-{word.lower()}")
    wait("a raised request", lambda: one.told() and one.asked() > FLOOR + OVERHEAD)
    one.put_off(FLOOR + OVERHEAD, word)
    wait("to be told that", lambda: one.told() and one.state() == word)
    wait("a lower request", lambda: one.told() and one.asked() < CEILING + OVERHEAD - MIB)
    assert one.told() == FLOOR


def test_a_quota_of_the_namespace_is_kept_and_told(
    cluster: Any, agent: Callable[[str], Agent]
) -> None:
    one = agent("refused")
    hard = {"hard": {"requests.memory": str(FLOOR + OVERHEAD)}}
    made = cluster.server.request(
        "POST", QUOTAS,
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": hard},
    )  # fmt: skip
    used = {"used": {"requests.memory": str(FLOOR + OVERHEAD)}}
    name = made["metadata"]["name"]
    cluster.server.request(
        "PATCH", f"{QUOTAS}/{name}/status", {"status": {**hard, **used}}, kind=MERGE
    )
    try:
        wait("to be told that", lambda: one.told() and one.state() == "Refused")
        assert (one.told(), one.asked()) == (FLOOR, FLOOR + OVERHEAD)
    finally:
        cluster.server.request("DELETE", f"{QUOTAS}/{name}")
