"""Who may report for a pod: tokens of a real API server, refused with its reasons."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import test_utils
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from prometheus_client import CollectorRegistry

from onggi_operator.heartbeat.desk import Desk
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.heartbeat.identity import UNSEEN_FOR_S, Caller, Identities, Refusal
from onggi_operator.kube.access import ApiAccess
from onggi_operator.kube.client import ApiClient, ApiError
from onggi_operator.observe.fleet import Fleet
from onggi_operator.observe.world import World

pytestmark = pytest.mark.cluster

MINE, THEIRS = "identity-mine", "identity-theirs"
POOLS = "/apis/onggi.dev/v1alpha1/namespaces/{}/kvcachepools"
PODS = "/api/v1/namespaces/{}/pods"


@pytest.fixture(scope="module")
def cluster(installed: Any) -> Any:
    for namespace in (MINE, THEIRS):
        installed.namespace(namespace)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        installed.server.apply(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        pool = {
            "apiVersion": "onggi.dev/v1alpha1",
            "kind": "KVCachePool",
            "metadata": {"name": "chat"},
            "spec": {},
        }
        installed.server.apply(POOLS.format(namespace), pool)
    return installed


def access(cluster: Any, token: str) -> ApiAccess:
    file = cluster.folder / "identity.token"
    file.write_text(token)
    return ApiAccess(cluster.server.url, cluster.server.ca_file, file)


class Clock:
    """A clock that tests move."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def operator(cluster: Any) -> AsyncIterator[ApiClient]:
    """With the rights that the chart gives to the operator."""
    token = cluster.token("onggi-system", "onggi-operator")
    async with ApiClient(access(cluster, token)) as api:
        yield api


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identities(operator: ApiClient, clock: Clock) -> Identities:
    return Identities(operator, clock, lambda *_: False)


def make_pod(cluster: Any, namespace: str) -> Any:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "engine-", "annotations": {"onggi.dev/pool": "chat"}},
        "spec": {
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "vllm", "image": "vllm"}],
        },
    }
    return cluster.server.request("POST", PODS.format(namespace), body)


def delete(cluster: Any, pod: Any) -> None:
    meta = pod["metadata"]
    path = f"{PODS.format(meta['namespace'])}/{meta['name']}?gracePeriodSeconds=0"
    cluster.server.request("DELETE", path)


def token_of(cluster: Any, pod: Any, audience: str = "onggi") -> str:
    namespace = pod["metadata"]["namespace"]
    return str(cluster.token(namespace, "default", audience=audience, pod=pod))


def aged(cluster: Any, token: str, by_s: int) -> str:
    """The same token as if issued so much earlier, signed with the cluster's own key."""
    header, claims, _ = token.split(".")
    fields = json.loads(base64.urlsafe_b64decode(claims + "=="))
    for field in ("iat", "nbf", "exp"):
        fields[field] -= by_s
    text = f"{header}.{_url64(json.dumps(fields).encode())}"
    pem = (cluster.server.folder / "sa.key").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{text}.{_url64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def refusal(identities: Identities, token: str) -> str:
    answer = await identities.caller(token)
    assert isinstance(answer, Refusal), answer
    return answer.why


async def test_a_pods_token_names_the_pod(cluster: Any, identities: Identities) -> None:
    pod = make_pod(cluster, MINE)
    meta = pod["metadata"]
    answer = await identities.caller(token_of(cluster, pod))
    assert answer == Caller(MINE, meta["name"], meta["uid"])


async def test_a_token_that_will_not_do_is_refused_with_the_reason(
    cluster: Any, identities: Identities
) -> None:
    pod = make_pod(cluster, MINE)
    good = token_of(cluster, pod)
    other = token_of(cluster, pod, audience="https://kubernetes.default.svc")
    assert "is invalid for the target audiences" in await refusal(identities, other)
    assert "token has expired" in await refusal(identities, aged(cluster, good, 7200))
    assert isinstance(await identities.caller(aged(cluster, good, 600)), Caller)
    header, claims, signature = good.split(".")
    forged = f"{header}.{claims}.{signature[::-1]}"
    assert "the token is not good" in await refusal(identities, forged)
    unbound = cluster.token(MINE, "default", audience="onggi")
    assert await refusal(identities, unbound) == "the token is not bound to a pod"


async def test_a_deleted_pods_token_is_refused_within_half_a_minute(
    cluster: Any, identities: Identities, clock: Clock
) -> None:
    pod = make_pod(cluster, MINE)
    token = token_of(cluster, pod)
    assert isinstance(await identities.caller(token), Caller)
    delete(cluster, pod)
    clock.now_s = UNSEEN_FOR_S
    # The API server has a cache of its own, of ten seconds.
    deadline = time.monotonic() + 60
    while isinstance(answer := await identities.caller(token), Caller):
        assert time.monotonic() < deadline
        clock.now_s += UNSEEN_FOR_S
        await asyncio.sleep(0.5)
    assert "has been invalidated" in answer.why


def report(pod: Any, **changes: Any) -> dict[str, Any]:
    meta = pod["metadata"]
    return {
        "version": 1,
        "pool": "chat",
        "namespace": meta["namespace"],
        "pod": meta["name"],
        "pod_uid": meta["uid"],
        "node": "n1",
        "epoch": "0123456789abcdef",
        "mode": "Active",
        "capacity": {"host_bytes": 1 << 30, "disk_bytes": 0},
        "used": {"host_bytes": 0, "disk_bytes": 0},
        "arena_ready_bytes": 1 << 30,
        "hits": {"host_blocks": 0, "disk_blocks": 0},
        "lookups": {"requests": 0, "blocks": 0, "miss_blocks": 0},
        "tokens_saved": 10**9,
        "evictions": 0,
        "errors": {},
        "fingerprints": ["ab" * 16],
        "clients": 1,
        **changes,
    }


async def test_a_pod_cannot_speak_for_another_one_or_another_namespaces_pool(
    cluster: Any, identities: Identities, clock: Clock
) -> None:
    world = World({}, started="2026-01-01T00:00:00Z", started_s=0.0, interval_s=5.0)
    for namespace in (MINE, THEIRS):
        world.see_pool(cluster.server.request("GET", f"{POOLS.format(namespace)}/chat"))
    fleet = Fleet({}, {}, {}, started_s=0.0, newborn_after="2026-01-01T00:00:00Z")
    server = HeartbeatServer(lambda: Desk(world, fleet), identities, clock, CollectorRegistry())
    mine, other = make_pod(cluster, MINE), make_pod(cluster, MINE)
    theirs = make_pod(cluster, THEIRS)
    token = token_of(cluster, mine)
    owner = f"{MINE}/{mine['metadata']['name']}"
    refused = (403, {"error": f"the token belongs to pod {owner}"})
    async with test_utils.TestClient(test_utils.TestServer(server.app())) as client:

        async def answer(body: dict[str, Any]) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            async with client.post("/v1/heartbeat", json=body, headers=headers) as response:
                return response.status, await response.json()

        assert await answer(report(other)) == refused
        assert await answer(report(theirs)) == refused
        assert await answer(report(mine, namespace=THEIRS)) == refused
        assert await answer(report(mine, pod_uid=other["metadata"]["uid"])) == refused
        assert heard(world) == {MINE: set(), THEIRS: set()}
        assert (await answer(report(mine)))[0] == 200
        assert heard(world) == {MINE: {mine["metadata"]["uid"]}, THEIRS: set()}


def heard(world: World) -> dict[str, set[str]]:
    return {one.key[0]: set(one.heard) for one in world.snapshot(now_s=0.0)}


@pytest.mark.parametrize(("audience", "status"), [("onggi", 401), (None, 403)])
async def test_a_pod_can_neither_read_nor_write_pools(
    cluster: Any, audience: str | None, status: int
) -> None:
    """Neither with the token that its agent is given, which the API server does not take, nor with
    its service account's own, which has no rights."""
    pod = make_pod(cluster, MINE)
    token = cluster.token(MINE, "default", audience=audience, pod=pod)
    async with ApiClient(access(cluster, token)) as api:
        for namespace in (MINE, THEIRS):
            path = f"{POOLS.format(namespace)}/chat"
            with pytest.raises(ApiError) as refused:
                await api.get(path)
            assert refused.value.status == status
            with pytest.raises(ApiError) as refused:
                await api.patch(path, {"spec": {"mode": "Paused"}})
            assert refused.value.status == status
