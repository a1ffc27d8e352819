"""Puts the objects into the API server, and gives pods their tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from bench.scale import objects
from bench.scale.objects import Place, Size
from bench.scale.site import Site

AT_ONCE: Final = 16
"""Calls in flight: enough to keep the API server busy."""

TOKEN_S: Final = 3600
"""As the webhook asks of the kubelet."""

RENEW: Final = 0.8
"""Of its life, after which a kubelet renews a token."""

MERGE: Final = "application/merge-patch+json"


@dataclass(frozen=True)
class Made:
    """A pod that is there."""

    at: Place
    uid: str


class Cluster:
    """Calls of everybody but Onggi: kubelets, controllers, people."""

    def __init__(self, site: Site, session: aiohttp.ClientSession) -> None:
        self._site = site
        self._session = session
        self._tls = ssl.create_default_context(cafile=str(site.server.ca_file))
        pem = (site.server.folder / "sa.key").read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, rsa.RSAPrivateKey)
        self._key = key
        self._accounts: dict[str, str] = {}

    async def fill(self, size: Size) -> list[Made]:
        """Everything but the agents."""
        await _bounded(self._namespace(name) for name in objects.namespaces(size))
        await _bounded(self._pool(namespace, body) for namespace, body in objects.pools(size))
        await _bounded(self._node(objects.node_name(n)) for n in range(size.nodes))
        places = (objects.place(size, n) for n in range(size.pods))
        return await _bounded(self.make_pod(at) for at in places)

    async def make_pod(self, at: Place) -> Made:
        """One that runs at once."""
        path = f"/api/v1/namespaces/{at.namespace}/pods"
        made = await self.call("POST", path, objects.pod(at))
        status = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
        await self.call("PATCH", f"{path}/{at.name}/status", status, kind=MERGE)
        return Made(at, made["metadata"]["uid"])

    async def delete_pod(self, at: Place) -> None:
        path = f"/api/v1/namespaces/{at.namespace}/pods/{at.name}?gracePeriodSeconds=0"
        await self.call("DELETE", path)

    async def beat_node(self, name: str, at: str) -> None:
        """As a kubelet does every five minutes, when nothing else changed."""
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": at}
        body = {"status": {"conditions": [condition]}}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", body, kind=MERGE)

    async def nodes_written(self) -> int:
        """KVCacheNodes that the controller has made."""
        found = await self.call("GET", "/apis/onggi.dev/v1alpha1/kvcachenodes?limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    def token(self, pod: Made) -> str:
        """As a TokenRequest would answer, signed with the API server's own key, so that ten
        thousand of them need not be asked for."""
        now, at = int(time.time()), pod.at
        claims = {
            "aud": ["onggi"],
            "exp": now + TOKEN_S,
            "iat": now,
            "nbf": now,
            "iss": "https://kubernetes.default.svc",
            "kubernetes.io": {
                "namespace": at.namespace,
                "pod": {"name": at.name, "uid": pod.uid},
                "serviceaccount": {"name": "default", "uid": self._accounts[at.namespace]},
            },
            "sub": f"system:serviceaccount:{at.namespace}:default",
        }
        text = (
            f"{_url64(json.dumps({'alg': 'RS256'}).encode())}.{_url64(json.dumps(claims).encode())}"
        )
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_url64(signature)}"

    async def text(self, path: str) -> str:
        """What is no JSON."""
        return await self._ask("GET", path, None, "")

    async def call(self, method: str, path: str, body: Any = None, *, kind: str = "") -> Any:
        return json.loads(await self._ask(method, path, body, kind))

    async def _ask(self, method: str, path: str, body: Any, kind: str) -> str:
        headers = {
            "Authorization": f"Bearer {self._site.admin_token}",
            "Content-Type": kind or "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        url = self._site.server.url + path
        async with self._session.request(
            method, url, data=data, headers=headers, ssl=self._tls
        ) as answer:
            text = await answer.text()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
        return text

    async def _namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.call("POST", "/api/v1/namespaces", body)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        self._accounts[name] = (await self.call("POST", path, account))["metadata"]["uid"]

    async def _pool(self, namespace: str, body: dict[str, Any]) -> None:
        path = f"/apis/onggi.dev/v1alpha1/namespaces/{namespace}/kvcachepools"
        await self.call("POST", path, body)

    async def _node(self, name: str) -> None:
        body = objects.node(name)
        await self.call("POST", "/api/v1/nodes", body)
        status = {"status": body["status"]}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", status, kind=MERGE)


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def _bounded(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """All of them, a few at a time, in order."""
    line = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[Any]) -> Any:
        async with line:
            return await call

    return list(await asyncio.gather(*(one(call) for call in calls)))
