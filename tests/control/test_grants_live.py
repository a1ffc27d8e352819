"""Memory granted to real agents by a controller with a real API server."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MIB = 1 << 20
PATIENCE_S = 90.0
SPACE = "team-grants"
NODE = "n1"
FLOOR, CEILING = 64 * MIB, 256 * MIB

RESOLVE = """
import socket
real = socket.getaddrinfo
def loopback(host, *more, **named):
    return real("127.0.0.1" if str(host).endswith(".svc") else host, *more, **named)
socket.getaddrinfo = loopback
"""
"""In a cluster its DNS knows the operator's Service; here the agent's process believes it."""


@pytest.fixture(scope="module")
def cluster(
    server: Any, render: Any, installed_class: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    documents = render("operator.statusIntervalSeconds=2", "operator.heartbeatIntervalSeconds=1")
    installed = installed_class(server, documents, tmp_path_factory.mktemp("grants"))
    installed.namespace(SPACE)
    make_node(server)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply(f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    with installed.process("controller") as part:
        installed.controller = part
        yield installed


def make_node(server: Any) -> None:
    server.request(
        "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    )
    status = {
        "allocatable": {"memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"},
        "capacity": {"memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
    }
    server.request(
        "PATCH",
        f"/api/v1/nodes/{NODE}/status",
        {"status": status},
        kind="application/merge-patch+json",
    )


def make_pool(server: Any, **placement: Any) -> None:
    server.apply(
        f"/apis/onggi.dev/v1alpha1/namespaces/{SPACE}/kvcachepools",
        {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCachePool",
            "metadata": {"name": "chat"},
            "spec": {
                "tiers": [{"type": "Memory", "memory": {"min": "64Mi", "max": "256Mi"}}],
                "lifecycle": {"rampUp": "0s"},
                "placement": {"interval": "10s", "step": "128Mi", **placement},
            },
        },
    )


def offer(server: Any, memory: str) -> None:
    server.apply(
        "/apis/onggi.dev/v1alpha1/kvcachenodes",
        {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCacheNode",
            "metadata": {"name": NODE},
            "spec": {"offer": {"memory": memory}},
        },
    )


def make_pod(server: Any, name: str) -> Any:
    env = {"ONGGI_AGENT_MEMORY": FLOOR, "ONGGI_AGENT_MEMORY_MAX": CEILING}
    agent = {
        "name": "onggi-agent",
        "image": "agent",
        "restartPolicy": "Always",
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "resources": {"requests": {"memory": "256Mi"}},
    }
    return server.request(
        "POST",
        f"/api/v1/namespaces/{SPACE}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": {
                    "onggi.dev/pool": "chat",
                    "onggi.dev/status": "injected: abc: pool chat",
                },
            },
            "spec": {
                "nodeName": NODE,
                "serviceAccountName": "default",
                "terminationGracePeriodSeconds": 0,
                "initContainers": [agent],
                "containers": [{"name": "vllm", "image": "vllm"}],
            },
        },
    )


class Agents:
    """Real agent processes for pods that only the API server knows."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.running: dict[str, Any] = {}

    def start(self, name: str) -> Any:
        server = self._cluster.server
        pod = make_pod(server, name)
        folder = self._folder / name
        folder.mkdir()
        token = folder / "token"
        token.write_text(self._cluster.token(SPACE, "default", audience="onggi", pod=pod))
        secret = server.request("GET", "/api/v1/namespaces/onggi-system/secrets/onggi-tls")

        port = self._cluster.https_ports["controller"]
        agent = AgentProcess(
            folder,
            *("--memory", str(FLOOR), "--memory-max", str(CEILING)),
            patch=RESOLVE,
            ONGGI_AGENT_POOL="chat",
            ONGGI_AGENT_NAMESPACE=SPACE,
            ONGGI_AGENT_POD_NAME=name,
            ONGGI_AGENT_POD_UID=pod["metadata"]["uid"],
            ONGGI_AGENT_NODE_NAME=NODE,
            ONGGI_AGENT_OPERATOR_URL=f"https://onggi-operator.onggi-system.svc:{port}",
            ONGGI_AGENT_OPERATOR_CA=base64.b64decode(secret["data"]["ca.crt"]).decode(),
            ONGGI_AGENT_TOKEN_FILE=str(token),
        )
        self.running[name] = agent
        return agent

    def clean_up(self) -> None:
        for name, agent in self.running.items():
            agent.clean_up()
            self._cluster.server.request(
                "DELETE", f"/api/v1/namespaces/{SPACE}/pods/{name}?gracePeriodSeconds=0"
            )


@pytest.fixture
def agents(cluster: Any, memory_folder: Path) -> Iterator[Agents]:
    made = Agents(cluster, memory_folder)
    yield made
    made.clean_up()


def wait(cluster: Any, what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        if time.monotonic() > deadline:
            log = (cluster.folder / "controller.log").read_text()[-3000:]
            status = cache_node(cluster).get("status")
            raise AssertionError(f"not in time: {what}\n{json.dumps(status, indent=1)}\n{log}")
        time.sleep(0.2)
    return answer


def cache_node(cluster: Any) -> Any:
    found = cluster.server.request("GET", "/apis/onggi.dev/v1alpha1/kvcachenodes")["items"]
    return next((one for one in found if one["metadata"]["name"] == NODE), {})


def said(agent: Any) -> int:
    """What the agent was last told to hold."""
    told = agent.said("budget_set")
    return int(told[-1]["host_bytes"]) if told else FLOOR


def test_agents_share_what_their_node_gives_and_give_way_to_one_another(
    cluster: Any, agents: Agents
) -> None:
    server = cluster.server
    make_pool(server)
    offer(server, "384Mi")
    one = agents.start("one")
    wait(cluster, "all for the only one", lambda: said(one) == CEILING)
    two = agents.start("two")
    wait(cluster, "what is left for the second", lambda: said(two) == 128 * MIB)

    def of_both() -> Any:
        """The first one may be of a moment at which the second was not heard yet, and was charged
        what it could hold."""
        told = cache_node(cluster).get("status") or {}
        granted = told.get("granted", {}).get("memoryBytes", 0)
        return told if len(told.get("grants") or ()) == 2 and granted <= 384 * MIB else None

    status = wait(cluster, "a status that tells of both", of_both)
    assert status["offered"]["memoryBytes"] == 384 * MIB
    printed = plan_printed(cluster)
    assert printed[0].startswith(f"{NODE}: ")
    assert printed[0].endswith(" granted of 384Mi offered")
    assert sorted(line.split(":")[0].strip() for line in printed[1:]) == [
        f"{SPACE}/one (pool chat)",
        f"{SPACE}/two (pool chat)",
    ]
    owner = cache_node(cluster)["metadata"].get("ownerReferences")
    assert owner is None, "made by a person, so it stays when the node goes"
    offer(server, "192Mi")

    def sizes() -> list[int]:
        return sorted(said(agent) for agent in (one, two))

    wait(cluster, "less for both", lambda: sizes() == [FLOOR, 128 * MIB])
    assert cluster.controller.stop() == 0
    cluster.controller.start()
    offer(server, "256Mi")
    wait(cluster, "more once it has heard both", lambda: sizes() == [128 * MIB, 128 * MIB])


def test_a_cordoned_node_drains_its_agents_and_a_pool_says_so(cluster: Any, agents: Agents) -> None:
    server = cluster.server
    make_pool(server)
    one = agents.start("three")
    one.wait_for("listening")
    set_cordon(server, cordoned=True)
    one.wait_for("drain_begun")

    def draining() -> bool:
        pool = server.request(
            "GET", f"/apis/onggi.dev/v1alpha1/namespaces/{SPACE}/kvcachepools/chat"
        )
        found = {c["type"]: c["reason"] for c in pool["status"]["conditions"]}
        return bool(found["Draining"] == "AgentsDraining")

    wait(cluster, "the condition Draining", draining)
    set_cordon(server, cordoned=False)
    one.wait_for("drain_over")


def plan_printed(cluster: Any) -> list[str]:
    """What `kubectl exec` in the operator's pod would show of this suite's node: the server has
    those of other suites too."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ONGGI_API_SERVER": cluster.server.url,
        "ONGGI_API_CA_FILE": str(cluster.server.ca_file),
        "ONGGI_API_TOKEN_FILE": str(cluster.folder / "controller.token"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "onggi_operator", "plan", "--namespace", SPACE],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    lines = dropwhile(lambda line: not line.startswith(f"{NODE}: "), done.stdout.splitlines())
    return [next(lines), *takewhile(lambda line: line.startswith(" "), lines)]


def set_cordon(server: Any, *, cordoned: bool) -> None:
    server.request(
        "PATCH",
        f"/api/v1/nodes/{NODE}",
        {"spec": {"unschedulable": cordoned}},
        kind="application/merge-patch+json",
    )
