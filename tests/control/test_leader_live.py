"""Two operators as processes, each behind a front of its own before one real API server, and agents
that report to whichever answers. Whatever happens to the one that leads, the other takes over, no
two write, and agents together never hold more than their node gives.

A lease is 15 seconds, so each change of leader takes as long; the times are Kubernetes' own.
"""

import base64
import http.client
import json
import random
import re
import signal
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MIB = 1 << 20
PATIENCE_S = 120.0
SPACE, NODE = "team-leader", "n-leader"
FLOOR, CEILING, OFFER = 64 * MIB, 256 * MIB, 384 * MIB
SETTLE_S = 4.0
REPORTED = re.compile(r"/(kvcachepools|kvcachenodes|events)\b")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/onggi-system/leases/onggi-operator"


class Site:
    """Node, pool and agents, and the operators `a` and `b`."""

    def __init__(self, cluster: Any, api_front: Any, stack: ExitStack) -> None:
        self.cluster, self.server = cluster, cluster.server
        self.fronts, self.parts = {}, {}
        for name in ("a", "b"):
            self.fronts[name] = stack.enter_context(api_front.standing_before(self.server))
            url = f"https://127.0.0.1:{self.fronts[name].port}"
            running = cluster.process("controller", api_url=url, replica=f"-{name}")
            self.parts[name] = stack.enter_context(running)
        secret = self.server.request("GET", "/api/v1/namespaces/onggi-system/secrets/onggi-tls")
        self.ca = base64.b64decode(secret["data"]["ca.crt"]).decode()
        self.held: dict[str, int] = {}
        self.most = 0
        """The most that agents ever held together."""
        self._lock = threading.Lock()
        self.stop = threading.Event()
        self.agents = [Agent(self, f"p{number}") for number in range(3)]

    def holds(self, agent: str, size_bytes: int) -> None:
        with self._lock:
            self.held[agent] = size_bytes
            self.most = max(self.most, sum(self.held.values()))

    def leads(self, name: str) -> bool:
        """As its own metrics say."""
        url = f"http://127.0.0.1:{self.parts[name].health_port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return "onggi_operator_leading 1.0" in answer.read().decode()

    def writes(self, name: str) -> list[float]:
        """When it wrote what only a leader writes."""
        return [at_s for at_s, path in self.fronts[name].writes if REPORTED.search(path)]

    def writers(self) -> str:
        """Who wrote, in order: `aba` when b wrote between two spells of a."""
        both = sorted((at_s, name) for name in "ab" for at_s in self.writes(name))
        return "".join(name for name, _ in groupby(name for _, name in both))

    def transitions(self) -> int:
        return int(self.server.request("GET", LEASE)["spec"]["leaseTransitions"])

    def wait(self, what: str, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                logs = [f"{n}: {part.log.read_text()[-2000:]}" for n, part in self.parts.items()]
                raise AssertionError("\n".join([f"not in time: {what}; {self.held}", *logs]))
            time.sleep(0.2)

    def goes_on(self, name: str) -> None:
        """It leads, writes, hears every agent and has shared out all."""
        self.wait(f"{name} leads", lambda: self.leads(name))
        after_s = time.monotonic()
        self.wait(f"{name} writes", lambda: max(self.writes(name), default=0) > after_s)
        self.wait("agents report to it", lambda: {one.port for one in self.agents} == {
            self.parts[name].https_port
        })  # fmt: skip
        self.wait("all is granted", lambda: sum(self.held.values()) == OFFER)


class Agent(threading.Thread):
    """Reports, and holds what it is told from that moment on."""

    def __init__(self, site: Site, name: str) -> None:
        super().__init__(daemon=True)
        self._site = site
        pod = make_pod(site.server, name)
        self._token = site.cluster.token(SPACE, "default", audience="onggi", pod=pod)
        self._beat = beat(name, pod["metadata"]["uid"])
        self._line: http.client.HTTPSConnection | None = None
        self.port = 0
        """Of the operator that last answered."""
        site.holds(name, FLOOR)
        self.start()

    def run(self) -> None:
        while not self._site.stop.is_set():
            try:
                self._report()
            except (OSError, http.client.HTTPException):
                self._hang_up()
            time.sleep(0.3)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def _report(self) -> None:
        port = self.port
        if self._line is None:
            port = random.choice(list(self._site.parts.values())).https_port
            self._line = line_to(port, self._site.ca)
        name, held = self._beat["pod"], self._site.held[self._beat["pod"]]
        self._beat["sequence"] += 1
        self._beat["tokens_saved"] += 1
        self._beat["held"] = self._beat["capacity"] = {"host_bytes": held, "disk_bytes": 0}
        headers = {"Authorization": f"Bearer {self._token}"}
        self._line.request("POST", "/v1/heartbeat", json.dumps(self._beat), headers)
        answer = self._line.getresponse()
        told = json.loads(answer.read())
        if answer.will_close:
            self._hang_up()
        if answer.status == 200:
            self.port = port
            self._site.holds(name, told.get("host_bytes", held))


def line_to(port: int, ca: str) -> http.client.HTTPSConnection:
    """To the operator on this port, as if the Service had chosen it."""
    context = ssl.create_default_context(cadata=ca)
    context.check_hostname = False
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=4, context=context)


def beat(name: str, uid: str) -> dict[str, Any]:
    return {
        "version": 1,
        "sequence": 0,
        "pool": "chat",
        "namespace": SPACE,
        "pod": name,
        "pod_uid": uid,
        "node": NODE,
        "epoch": "0123456789abcdef",
        "mode": "Active",
        "used": {"host_bytes": 0, "disk_bytes": 0},
        "arena_ready_bytes": FLOOR,
        "hits": {"host_blocks": 0, "disk_blocks": 0},
        "lookups": {"requests": 0, "blocks": 0, "miss_blocks": 0},
        "tokens_saved": 0,
        "evictions": 0,
        "errors": {},
        "fingerprints": ["ab" * 16],
        "clients": 1,
    }


def make_pod(server: Any, name: str) -> Any:
    env = {"ONGGI_AGENT_MEMORY": FLOOR, "ONGGI_AGENT_MEMORY_MAX": CEILING}
    agent = {
        "name": "onggi-agent",
        "image": "agent",
        "restartPolicy": "Always",
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "resources": {"requests": {"memory": "256Mi"}},
    }
    notes = {"onggi.dev/pool": "chat", "onggi.dev/status": "injected: abc: pool chat"}
    spec = {
        "nodeName": NODE,
        "serviceAccountName": "default",
        "initContainers": [agent],
        "containers": [{"name": "vllm", "image": "vllm"}],
    }
    meta = {"name": name, "annotations": notes}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return server.request("POST", f"/api/v1/namespaces/{SPACE}/pods", body)


def make_place(cluster: Any) -> None:
    """A node that offers memory for half of what three agents could take, and their pool."""
    server = cluster.server
    cluster.namespace(SPACE)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    server.apply(f"/api/v1/namespaces/{SPACE}/serviceaccounts", account)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    server.request("POST", "/api/v1/nodes", node)
    resources = {"memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
    status = {"allocatable": resources, "capacity": resources, "conditions": [ready]}
    path = f"/api/v1/nodes/{NODE}/status"
    server.request("PATCH", path, {"status": status}, kind="application/merge-patch+json")
    group = "onggi.dev/v1alpha1"
    own = {"apiVersion": group, "kind": "KVCacheNode", "metadata": {"name": NODE}}
    server.apply(f"/apis/{group}/kvcachenodes", {**own, "spec": {"offer": {"memory": str(OFFER)}}})
    memory = {"min": str(FLOOR), "max": str(CEILING)}
    spec = {"tiers": [{"type": "Memory", "memory": memory}], "lifecycle": {"rampUp": "0s"}}
    pool = {"apiVersion": group, "kind": "KVCachePool", "metadata": {"name": "chat"}, "spec": spec}
    server.apply(f"/apis/{group}/namespaces/{SPACE}/kvcachepools", pool)


@pytest.fixture
def site(
    apiserver: Any, render: Any, installed_class: Any, api_front: Any, tmp_path: Path
) -> Iterator[Site]:
    """With an API server of its own: its Lease is nobody's yet."""
    if reason := apiserver.missing():
        pytest.skip(reason)
    documents = render("operator.statusIntervalSeconds=2", "operator.heartbeatIntervalSeconds=1")
    (tmp_path / "api").mkdir()
    (tmp_path / "processes").mkdir()
    with apiserver.run(tmp_path / "api") as server, ExitStack() as stack:
        cluster = installed_class(server, documents, tmp_path / "processes")
        make_place(cluster)
        made = Site(cluster, api_front, stack)
        yield made
        made.stop.set()
        for agent in made.agents:
            agent.join(30)


def test_a_leader_that_froze_or_died_is_followed_and_never_writes_again(site: Site) -> None:
    a, b = site.parts["a"].process, site.parts["b"].process
    site.goes_on("a")
    assert not site.leads("b")
    a.send_signal(signal.SIGSTOP)
    site.goes_on("b")
    a.send_signal(signal.SIGCONT)
    assert not site.leads("a")
    time.sleep(SETTLE_S)
    site.goes_on("b")
    b.kill()
    b.wait()
    site.goes_on("a")
    assert site.writers() == "aba"
    assert site.transitions() == 3
    assert site.most == OFFER
    assert site.parts["a"].stop() == 0
    assert site.server.request("GET", LEASE)["spec"].get("holderIdentity", "") == ""
    site.parts["b"].start()
    site.goes_on("b")
    assert site.writers() == "abab"
    assert site.most == OFFER


def test_a_leader_that_is_cut_off_stops_before_the_other_begins(site: Site) -> None:
    site.goes_on("a")
    site.fronts["a"].go_away()
    site.goes_on("b")
    assert not site.leads("a")
    site.fronts["a"].away = False
    time.sleep(SETTLE_S)
    site.goes_on("b")
    assert site.writers() == "ab"
    for front in site.fronts.values():
        front.go_away()
    site.wait("nobody leads", lambda: not site.leads("b"))
    site.wait("agents are answered", lambda: sum(site.held.values()) == OFFER)
    for front in site.fronts.values():
        front.away = False
    site.goes_on("b")
    assert site.writers() == "ab"
    assert site.transitions() == 2, "nobody else led meanwhile, so it goes on as it was"
    assert site.most == OFFER
