"""The controller as a process against a real API server: heartbeats in, statuses out."""

import base64
import http.client
import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

NUMBERS = itertools.count()
PATIENCE_S = 30.0
ASK_AGAIN = (421, 503)
"""Answers of an operator that does not lead, or not yet: an agent asks again."""


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pools_path(namespace: str) -> str:
    return f"/apis/onggi.dev/v1alpha1/namespaces/{namespace}/kvcachepools"


@pytest.fixture(scope="module")
def cluster(installed: Any) -> Iterator[Any]:
    with installed.process("controller") as part:
        installed.controller = part
        yield installed


@pytest.fixture
def team(cluster: Any) -> "Team":
    return Team(cluster, f"team-{next(NUMBERS)}")


class Team:
    """A namespace with a pool named chat, and pods that claim whatever a test says."""

    def __init__(self, cluster: Any, namespace: str) -> None:
        self.cluster = cluster
        self.server = cluster.server
        self.namespace = namespace
        cluster.namespace(namespace)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.server.apply(path, account)
        self.make_pool()
        self._seen = False

    def make_pool(self, **spec: Any) -> Any:
        body = {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCachePool",
            "metadata": {"name": "chat"},
            "spec": spec,
        }
        return self.server.apply(pools_path(self.namespace), body)

    def make_pod(self, name: str, status: str | None, pool: str = "chat") -> Any:
        annotations = {"onggi.dev/pool": pool}
        if status is not None:
            annotations["onggi.dev/status"] = status
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "serviceAccountName": "default",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "vllm", "image": "vllm"}],
            },
        }
        return self.server.request("POST", pods_path(self.namespace), body)

    def token(self, pod: Any, audience: str = "onggi") -> str:
        token = self.cluster.token(self.namespace, "default", audience=audience, pod=pod)
        return str(token)

    def await_seen(self) -> None:
        """Until the controller knows of the pool."""
        if not self._seen:
            self.wait(lambda status: status.get("observedGeneration") is not None)
            self._seen = True

    def report(self, pod: Any, token: str, **changes: Any) -> tuple[int, dict[str, Any]]:
        """Once the controller has seen the pool: agents come back, and this reports only once."""
        self.await_seen()
        beat = {
            "version": 1,
            "pool": "chat",
            "namespace": self.namespace,
            "pod": pod["metadata"]["name"],
            "pod_uid": pod["metadata"]["uid"],
            "node": "n1",
            "epoch": "0123456789abcdef",
            "mode": "Active",
            "capacity": {"host_bytes": 1 << 30, "disk_bytes": 4 << 30},
            "used": {"host_bytes": 1 << 29, "disk_bytes": 0},
            "arena_ready_bytes": 1 << 30,
            "hits": {"host_blocks": 0, "disk_blocks": 0},
            "lookups": {"requests": 0, "blocks": 0, "miss_blocks": 0},
            "tokens_saved": 0,
            "evictions": 0,
            "errors": {},
            "fingerprints": ["ab" * 16],
            "clients": 1,
            **changes,
        }
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.post(json.dumps(beat).encode(), token)
            if answer[0] not in ASK_AGAIN or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def post(self, body: bytes, token: str) -> tuple[int, dict[str, Any]]:
        """As an agent does it: the operator's Service name, its CA, a projected token."""
        secret = self.server.request("GET", "/api/v1/namespaces/onggi-system/secrets/onggi-tls")
        ca = base64.b64decode(secret["data"]["ca.crt"]).decode()
        context = ssl.create_default_context(cadata=ca)
        connection = _Named("127.0.0.1", self.cluster.https_ports["controller"], context)
        try:
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("POST", "/v1/heartbeat", body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def pool(self) -> Any:
        return self.server.request("GET", f"{pools_path(self.namespace)}/chat")

    def wait(self, holds: Callable[[Any], bool]) -> Any:
        """The pool once its status is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            pool = self.pool()
            if holds(pool["status"]):
                return pool
            if time.monotonic() > deadline:
                log = (self.cluster.folder / "controller.log").read_text()[-3000:]
                raise AssertionError(f"{json.dumps(pool['status'], indent=1)}\n{log}")
            time.sleep(0.2)

    def conditions(self, status: Any) -> dict[str, tuple[str, str]]:
        return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


class _Named(http.client.HTTPSConnection):
    """Connects to this host and asks for the Service's certificate."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=20, context=context)
        self._named_context = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        name = "onggi-operator.onggi-system.svc"
        self.sock = self._named_context.wrap_socket(self.sock, server_hostname=name)


INJECTED = "injected: abc: pool chat"


def test_a_pool_without_pods_is_accepted_and_says_so(team: Team) -> None:
    status = team.wait(lambda s: s.get("observedGeneration") == 1)["status"]
    assert team.conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Injected": ("Unknown", "NoPods"),
        "Ready": ("Unknown", "NoPods"),
        "CapacityAllocated": ("Unknown", "NoReports"),
        "IdentityConsistent": ("Unknown", "NoFingerprints"),
        "Effective": ("Unknown", "NoReports"),
        "Draining": ("Unknown", "NoReports"),
    }
    assert status["pods"] == dict.fromkeys(("matched", "injected", "ready", "skipped", "missed"), 0)


def test_pods_are_counted_by_what_became_of_them(team: Team) -> None:
    team.make_pod("one", INJECTED)
    team.make_pod("two", "skipped: ConnectorSet: container vllm sets --kv-transfer-config itself")
    team.make_pod("three", None)
    team.make_pod("other", INJECTED, pool="else")
    status = team.wait(lambda s: (s.get("pods") or {}).get("matched") == 3)["status"]
    assert status["pods"] == {"matched": 3, "injected": 1, "ready": 0, "skipped": 1, "missed": 1}
    assert status["skipped"] == [
        {
            "pod": "two",
            "reason": "ConnectorSet",
            "message": "container vllm sets --kv-transfer-config itself",
        }
    ]
    assert [one["pod"] for one in status["missed"]] == ["three"]
    assert team.conditions(status)["Injected"] == ("False", "PodsSkipped")
    assert team.conditions(status)["Ready"] == ("False", "AgentsStarting")
    events = _wait_events(team, 3)
    assert {(e["involvedObject"]["kind"], e["reason"], e["type"]) for e in events} == {
        ("Pod", "OnggiSkipped", "Warning"),
        ("Pod", "OnggiMissed", "Warning"),
        ("KVCachePool", "PodsSkipped", "Warning"),
    }
    assert len(events) == 3


def _wait_events(team: Team, count: int) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        events = team.server.request("GET", f"/api/v1/namespaces/{team.namespace}/events")["items"]
        if len(events) >= count or time.monotonic() > deadline:
            return events
        time.sleep(0.2)


def test_heartbeats_make_a_pod_ready_and_the_totals_grow(team: Team) -> None:
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    assert team.report(pod, token) == (200, {"version": 1, "mode": "Active", "interval_s": 5.0})
    team.report(
        pod,
        token,
        hits={"host_blocks": 60, "disk_blocks": 15},
        lookups={"requests": 2, "blocks": 100, "miss_blocks": 25},
        tokens_saved=1200,
    )
    status = team.wait(lambda s: s.get("tokensSaved") == 1200)["status"]
    assert status["hits"] == {"hostBlocks": 60, "diskBlocks": 15}
    assert status["lookups"] == {"requests": 2, "blocks": 100, "missBlocks": 25}
    assert status["capacity"] == {"hostBytes": 1 << 30, "diskBytes": 4 << 30}
    assert team.conditions(status)["Ready"] == ("True", "AllReady")
    assert team.conditions(status)["IdentityConsistent"] == ("True", "OneFingerprint")
    row = team.server.table(f"{pools_path(team.namespace)}/chat")
    assert row[:-1] == [
        ("Name", "chat"),
        ("Mode", "Active"),
        ("Ready", "1/1"),
        ("Injected", "1/1"),
        ("Host", "512Mi/1Gi"),
        ("Disk", "0/4Gi"),
        ("Hit", "75%"),
        ("Saved", "1.2k"),
        ("Reason", "AllReady"),
    ]


def test_totals_never_fall_when_an_agent_or_the_operator_starts_anew(team: Team) -> None:
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    team.report(pod, token, tokens_saved=100)
    team.report(pod, token, tokens_saved=40, epoch="fedcba9876543210")
    team.wait(lambda s: s.get("tokensSaved") == 140)
    assert team.cluster.controller.stop() == 0
    team.cluster.controller.start()
    team.report(pod, token, tokens_saved=45, epoch="fedcba9876543210")
    team.wait(lambda s: s.get("tokensSaved") == 145)


def test_a_changed_mode_is_the_next_answer(team: Team) -> None:
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    team.make_pool(mode="Observe")
    deadline = time.monotonic() + PATIENCE_S
    while team.report(pod, token)[1]["mode"] != "Observe":
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_agent_of_a_pool_that_is_gone_is_told_to_go_on(team: Team) -> None:
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    team.await_seen()
    team.server.request("DELETE", f"{pools_path(team.namespace)}/chat")
    time.sleep(1)
    assert team.report(pod, token, mode="Observe")[1]["mode"] == "Observe"


def test_a_token_is_good_for_its_own_pod_and_audience_only(team: Team) -> None:
    mine, other = team.make_pod("one", INJECTED), team.make_pod("two", INJECTED)
    assert team.report(other, team.token(mine))[0] == 403
    assert team.report(mine, team.token(mine, audience="https://kubernetes.default.svc"))[0] == 401
    assert team.report(mine, "nonsense")[0] == 401
    assert team.report(mine, "")[0] == 401
    unbound = team.cluster.token(team.namespace, "default", audience="onggi")
    assert team.report(mine, unbound)[0] == 401
    status, answer = team.report(mine, team.token(mine), pool="else")
    assert (status, answer) == (403, {"error": "pod one asks for pool chat, not else"})


def test_a_wrong_report_is_told_by_its_field(team: Team) -> None:
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    status, answer = team.report(pod, token, tokens_saved=-1)
    assert status == 400
    assert answer["error"].startswith("tokens_saved: is -1")
    assert team.post(b"nope", token)[0] == 400
    assert team.post(b" " * (64 * 1024 + 1), token)[0] == 413


def test_nothing_is_written_when_nothing_changes(team: Team) -> None:
    """Seen elsewhere: a rewritten transition time wakes the watch that rewrites it
    (strimzi/strimzi-kafka-operator#13079)."""
    pod = team.make_pod("one", INJECTED)
    token = team.token(pod)
    team.report(pod, token)
    before = team.wait(lambda s: (s.get("pods") or {}).get("ready") == 1)
    for _ in range(4):
        time.sleep(2)
        team.report(pod, token)
    assert team.pool()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_deleted_pool_goes_at_once(team: Team) -> None:
    pool = team.wait(lambda s: s.get("observedGeneration") == 1)
    assert "finalizers" not in pool["metadata"]
    assert "annotations" not in pool["metadata"]
    team.server.request("DELETE", f"{pools_path(team.namespace)}/chat")
    with pytest.raises(Exception, match="404"):
        team.pool()
