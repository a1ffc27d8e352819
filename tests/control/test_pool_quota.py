"""A pool's quota at admission: a pod that does not fit is admitted as it is, and told why."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from onggi_operator.inject.namespace import Namespace
from onggi_operator.inject.outcome import Injected
from onggi_operator.kube.reflector import Key
from onggi_operator.pool import Pool
from onggi_operator.tenancy import PoolQuota, PoolUse
from onggi_operator.webhook.promised import UNSEEN_S, Promise, Promises, project_promise
from onggi_operator.webhook.server import MUTATE_PATH, AdmissionServer

GI = 1 << 30
POOL = ("team-a", "main")


@pytest.mark.parametrize(
    ("quota", "promised", "refused"),
    [
        (PoolQuota(), PoolUse(99 * GI, 99 * GI), None),
        (PoolQuota(memory_bytes=4 * GI), PoolUse(3 * GI), None),
        (PoolQuota(memory_bytes=4 * GI), PoolUse(3 * GI + 1), "memory"),
        (PoolQuota(disk_bytes=8 * GI), PoolUse(99 * GI, 4 * GI), None),
        (PoolQuota(disk_bytes=8 * GI), PoolUse(0, 4 * GI + 1), "disk"),
    ],
)
def test_a_pod_fits_as_long_as_what_it_starts_with_does(
    kit: Any, quota: PoolQuota, promised: PoolUse, refused: str | None
) -> None:
    changes = {"quota": quota, "disk": kit.EMPTY_DIR, "memory": kit.MemoryTier(GI, 16 * GI)}
    outcome = kit.plan(kit.pod(), promised=promised, **changes)
    if refused is None:
        assert isinstance(outcome, Injected)
        assert outcome.takes == PoolUse(GI, 4 * GI)
    else:
        assert outcome.reason.value == "PoolQuota"
        assert f"(spec.quota.{refused})" in outcome.message


def test_the_reason_has_all_three_numbers(kit: Any) -> None:
    full = {"quota": PoolQuota(memory_bytes=4 * GI), "promised": PoolUse(7 * GI // 2)}
    assert kit.skipped(kit.pod(), **full) == (
        "PoolQuota",
        "pool main gives its pods 4Gi of memory together (spec.quota.memory), 3.5Gi are promised"
        " already, and this pod starts with 1Gi",
    )


def test_a_pod_may_ask_for_less_to_fit(kit: Any) -> None:
    full = {"quota": PoolQuota(4 * GI, 8 * GI), "promised": PoolUse(7 * GI // 2, 8 * GI)}
    less = {"onggi.dev/memory": "512Mi", "onggi.dev/disk": "0"}
    kit.inject(kit.pod(annotations=less), disk=kit.EMPTY_DIR, **full)


def test_what_an_injected_pod_takes_is_read_from_it(kit: Any) -> None:
    body = kit.inject(kit.pod(), disk=kit.EMPTY_DIR, memory=kit.MemoryTier(GI, 16 * GI))
    body["metadata"] |= {"namespace": "team-a", "uid": "u"}
    assert project_promise(body) == Promise("u", POOL, PoolUse(GI, 4 * GI))
    plain = kit.pod()
    assert project_promise(plain) is None
    assert "onggi.dev/pool" in body["metadata"]["labels"], "by which pods are asked for"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_who_was_let_in_counts_until_seen_and_once() -> None:
    seen: dict[Key, Promise] = {("team-a", "old"): Promise("old", POOL, PoolUse(4))}
    seen["team-a", "other"] = Promise("other", ("team-a", "other"), PoolUse(64))
    clock = Clock()
    promises = Promises(seen, clock)
    assert promises.of(POOL) == PoolUse(4)
    promises.promise(POOL, PoolUse(1))
    promises.promise(POOL, PoolUse(1))
    assert promises.of(POOL) == PoolUse(6)
    seen["team-a", "new"] = Promise("new", POOL, PoolUse(1))
    assert promises.of(POOL) == PoolUse(6)
    clock.now_s += UNSEEN_S + 1
    assert promises.of(POOL) == PoolUse(5), "the other one was refused by somebody else"
    del seen["team-a", "old"]
    assert promises.of(POOL) == PoolUse(1)


class OnePool:
    """The view of a cluster with one pool in it and no pod that is seen yet."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.promises = Promises({}, Clock())

    async def pool(self, namespace: str, name: str) -> Pool:
        return self._pool

    def namespace(self, name: str) -> Namespace:
        return Namespace(name)


async def test_of_a_hundred_pods_at_once_as_many_are_let_in_as_fit(kit: Any) -> None:
    sources: Any = OnePool(replace(kit.POOL, quota=PoolQuota(memory_bytes=5 * GI)))
    server = AdmissionServer(sources, lambda: kit.INSTALL, CollectorRegistry())

    async def admitted(client: Any, *, dry_run: bool) -> str:
        request = {"uid": "1", "namespace": "team-a", "object": kit.pod(), "dryRun": dry_run}
        review = {"apiVersion": "admission.k8s.io/v1", "request": request}
        answer = await client.post(MUTATE_PATH, data=json.dumps(review))
        patch = kit.decoded((await answer.json())["response"]["patch"])
        (text,) = [
            one["value"].get("onggi.dev/status", "")
            if isinstance(one["value"], dict)
            else one["value"]
            for one in patch
            if "annotations" in one["path"]
        ]
        return str(text)

    async with TestClient(TestServer(server.app())) as client:
        for _ in range(9):
            assert (await admitted(client, dry_run=True)).startswith("injected")
        said = [await admitted(client, dry_run=False) for _ in range(100)]
    assert [text.startswith("injected") for text in said] == [True] * 5 + [False] * 95
    assert said[5].startswith("skipped: PoolQuota: ")
