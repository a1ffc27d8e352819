"""The webhook's endpoint by itself: whatever happens inside, there is an answer, and it admits."""

import json
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from onggi_operator.inject.containers import Installation
from onggi_operator.inject.namespace import Namespace
from onggi_operator.pool import Pool
from onggi_operator.webhook.server import MUTATE_PATH, AdmissionServer


class OnePool:
    """The view of a cluster with one pool in it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def pool(self, namespace: str, name: str) -> Pool:
        return self._pool

    def namespace(self, name: str) -> Namespace:
        return Namespace(name)


def broken() -> Installation:
    raise RuntimeError("what nobody thought of")


async def test_a_bug_is_told_on_the_pod_and_counted(kit: Any) -> None:
    registry = CollectorRegistry()
    server = AdmissionServer(OnePool(kit.POOL), broken, registry)  # type: ignore[arg-type]
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "namespace": "team-a", "object": kit.pod()},
    }
    async with TestClient(TestServer(server.app())) as client:
        answer = await client.post(MUTATE_PATH, data=json.dumps(review))
        response = (await answer.json())["response"]
    assert response["allowed"] is True
    (operation,) = kit.decoded(response["patch"])
    assert operation["value"] == (
        "skipped: InternalError: RuntimeError: what nobody thought of; this is a bug of Onggi's"
    )
    labels = {"outcome": "skipped", "reason": "InternalError"}
    assert registry.get_sample_value("onggi_webhook_admissions_total", labels) == 1
