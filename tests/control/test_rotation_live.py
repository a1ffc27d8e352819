"""CA and certificate change again and again under webhook and controller while pods are made and
agents report, each over connections of its own: nobody is refused once."""

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TEAM = "rotation"
SECRET = "/api/v1/namespaces/onggi-system/secrets/onggi-tls"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
HOST = "onggi-operator.onggi-system.svc"
AUTHORITIES = 4
"""To be seen; the first is the one that the processes began with."""

PATIENCE_S = 200.0

# A CA takes over every 15 s, a leaf every 10 s, and either is good for 25 s and 20 s more, in which
# a machine that is busy otherwise may stall. A process looks every second, as if it were a minute.
HURRIED = """
from datetime import timedelta
from onggi_operator.tls import certificates, keeper
certificates.AUTHORITY_LIFE = timedelta(seconds=40)
certificates.AUTHORITY_RENEW_BEFORE = timedelta(seconds=25)
certificates.LEAF_LIFE = timedelta(seconds=30)
certificates.LEAF_RENEW_BEFORE = timedelta(seconds=20)
keeper.CHECK_PERIOD_S = 1.0
"""
POD_LIFE_S = 5.0
"""How long an agent keeps the CA that its pod was made with."""


@pytest.fixture
def hurried(installed: Any, tmp_path: Path) -> Iterator[Any]:
    """Webhook and controller whose certificates live for seconds."""
    (tmp_path / "sitecustomize.py").write_text(HURRIED)
    secret = installed.server.request("GET", SECRET)
    if secret.get("data"):
        clean = {"data": dict.fromkeys(secret["data"])}
        installed.server.request("PATCH", SECRET, clean, kind="application/merge-patch+json")
    installed.namespace(TEAM)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    installed.server.apply(f"/api/v1/namespaces/{TEAM}/serviceaccounts", account)
    pool = {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": "chat"},
        "spec": {},
    }
    installed.server.apply(f"/apis/onggi.dev/v1alpha1/namespaces/{TEAM}/kvcachepools", pool)
    with (
        installed.process("webhook", first_on_path=tmp_path),
        installed.process("controller", first_on_path=tmp_path),
    ):
        yield installed
    clean = {"data": dict.fromkeys(installed.server.request("GET", SECRET)["data"])}
    installed.server.request("PATCH", SECRET, clean, kind="application/merge-patch+json")


class Caller(threading.Thread):
    """Calls until told to stop, and counts. What goes wrong ends it and is kept."""

    def __init__(self, act: Callable[[], None], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._act = act
        self._stop_asked = stop
        self.calls = 0
        self.fault: Exception | None = None

    def run(self) -> None:
        while not self._stop_asked.wait(0.05):
            try:
                self._act()
            except Exception as fault:  # noqa: BLE001 - told by the test
                self.fault = fault
                return
            self.calls += 1


def pod(name: str = "") -> dict[str, Any]:
    named = {"name": name} if name else {"generateName": "engine-"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, "annotations": {"onggi.dev/pool": "chat"}},
        "spec": {
            "serviceAccountName": "default",
            "containers": [{"name": "vllm", "image": "vllm"}],
        },
    }


def make_a_pod(cluster: Any) -> dict[str, str]:
    """Dry, through the webhook; the agent's environment. A webhook that could not be called leaves
    no status on the pod."""
    made = cluster.server.request("POST", f"{PODS}?dryRun=All", pod())
    status = made["metadata"]["annotations"].get("onggi.dev/status", "no answer of the webhook's")
    assert status.startswith("injected: "), status
    agent = made["spec"]["initContainers"][0]
    return {entry["name"]: entry.get("value", "") for entry in agent["env"]}


class Agent:
    """Reports over a new connection each time (`lasting`: over one) and trusts what its pod was
    told when it was made; every few seconds it is a pod made anew."""

    def __init__(self, cluster: Any, name: str, *, lasting: bool) -> None:
        self._cluster = cluster
        self._pod = cluster.server.request("POST", PODS, pod(name))
        self._token = cluster.token(TEAM, "default", audience="onggi", pod=self._pod)
        self._lasting = lasting
        self._born_s = 0.0
        self._told = ""
        self._connection: _Named | None = None

    def report(self) -> None:
        if time.monotonic() - self._born_s > POD_LIFE_S and not self._lasting:
            self._told = make_a_pod(self._cluster)["ONGGI_AGENT_OPERATOR_CA"]
            self._born_s = time.monotonic()
        if self._connection is None:
            told = self._told or make_a_pod(self._cluster)["ONGGI_AGENT_OPERATOR_CA"]
            context = ssl.create_default_context(cadata=told)
            self._connection = _Named(self._cluster.https_ports["controller"], context)
        headers = {"Authorization": f"Bearer {self._token}"}
        self._connection.request("POST", "/v1/heartbeat", json.dumps(self._beat()), headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)
        if not self._lasting:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _beat(self) -> dict[str, Any]:
        return {
            "version": 1,
            "pool": "chat",
            "namespace": TEAM,
            "pod": self._pod["metadata"]["name"],
            "pod_uid": self._pod["metadata"]["uid"],
            "node": "n1",
            "epoch": "0123456789abcdef",
            "mode": "Active",
            "capacity": {"host_bytes": 1 << 30, "disk_bytes": 0},
            "used": {"host_bytes": 0, "disk_bytes": 0},
            "arena_ready_bytes": 1 << 30,
            "hits": {"host_blocks": 0, "disk_blocks": 0},
            "lookups": {"requests": 0, "blocks": 0, "miss_blocks": 0},
            "tokens_saved": 0,
            "evictions": 0,
            "errors": {},
            "fingerprints": ["ab" * 16],
            "clients": 1,
        }


class _Named(http.client.HTTPSConnection):
    """Connects to this host and asks for the Service's certificate."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, timeout=30, context=context)
        self._named_context = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._named_context.wrap_socket(self.sock, server_hostname=HOST)


def wait_effective(cluster: Any) -> None:
    """A webhook configuration takes effect a moment after it is written."""
    deadline = time.monotonic() + 30
    while True:
        try:
            make_a_pod(cluster)
            return
        except AssertionError:
            assert time.monotonic() < deadline
        time.sleep(0.2)


def wait_leading(agent: Agent) -> None:
    """A controller that has just started says so until it leads: agents ask again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            agent.report()
            return
        except (AssertionError, OSError, http.client.HTTPException):
            agent.close()
            assert time.monotonic() < deadline
        time.sleep(0.2)


def test_nobody_is_refused_while_ca_and_certificates_change(hurried: Any) -> None:
    wait_effective(hurried)
    agents = [Agent(hurried, f"engine-{n}", lasting=n == 0) for n in range(3)]
    for agent in agents:
        wait_leading(agent)
    stop = threading.Event()
    acts = [lambda: make_a_pod(hurried), *(agent.report for agent in agents)]
    callers = [Caller(act, stop) for act in acts]
    authorities: set[bytes] = set()
    leaves: set[bytes] = set()
    for caller in callers:
        caller.start()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(authorities) < AUTHORITIES and all(one.fault is None for one in callers):
            data = hurried.server.request("GET", SECRET)["data"]
            bundle = base64.b64decode(data["ca.crt"])
            authority = x509.load_pem_x509_certificates(bundle)[0]
            authorities.add(authority.subject.public_bytes())
            leaves.add(base64.b64decode(data["tls.crt"]))
            assert time.monotonic() < deadline
            time.sleep(0.5)
        time.sleep(3)
    finally:
        stop.set()
        for caller in callers:
            caller.join(60)
        for agent in agents:
            agent.close()
    told = [repr(one.fault) for one in callers if one.fault is not None]
    assert told == [], (hurried.folder / "controller.log").read_text()[-3000:]
    assert len(authorities) >= AUTHORITIES
    assert len(leaves) > len(authorities)
    assert min(one.calls for one in callers) > 50
    print(f"{len(authorities)} CAs, {len(leaves)} leaves, {[one.calls for one in callers]} calls")
