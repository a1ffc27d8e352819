"""A real API server and the real webhook beside it, as a bench needs them: no nodes, no rights."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.machine import ROOT
from bench.servers import SYSTEM, api_server, program

TEAM: Final = "team"
SERVICE: Final = "onggi-webhook"
HOST: Final = f"{SERVICE}.{SYSTEM}.svc"
"""The name that the webhook's certificate is for."""

POOLS: Final = 50

SETTINGS: Final = {
    "ONGGI_RELEASE_NAMESPACE": SYSTEM,
    "ONGGI_TLS_SECRET": "onggi-tls",
    "ONGGI_WEBHOOK_SERVICE": SERVICE,
    "ONGGI_OPERATOR_SERVICE": "onggi-operator",
    "ONGGI_WEBHOOK_CONFIGURATION": "onggi",
    "ONGGI_REVISIONS_CONFIG_MAP": "onggi-revisions",
    "ONGGI_AGENT_IMAGE": "onggi/agent:bench",
}
"""What the chart gives the webhook."""


@dataclass(frozen=True)
class ControlPlane:
    """What is running: the API server, and where the webhook listens."""

    server: Any
    admin_token: str
    webhook_url: str
    ca_pem: str


@contextmanager
def running(base: Path) -> Iterator[ControlPlane]:
    with api_server(base) as there:
        _prepare(there.tools, there.server)
        admin = there.tools.ADMIN_TOKEN
        with program(there, "webhook", token=admin, settings=SETTINGS) as webhook:
            ca_pem = _expose(there.server, webhook.port)
            url = f"https://127.0.0.1:{webhook.port}/mutate"
            yield ControlPlane(there.server, admin, url, ca_pem)


def _prepare(apiserver: Any, server: Any) -> None:
    """What the chart brings, without its rights: the webhook is an administrator here."""
    import yaml  # of the agent's libraries, which a bench of the client alone goes without

    for path in sorted((ROOT / "crds/v1alpha1").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        server.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        apiserver.wait_established(server, crd["metadata"]["name"])
    for name in (SYSTEM, TEAM):
        _make(server, "/api/v1/namespaces", "v1", "Namespace", name)
    _make(server, f"/api/v1/namespaces/{SYSTEM}/secrets", "v1", "Secret", "onggi-tls")
    _make(server, f"/api/v1/namespaces/{SYSTEM}/configmaps", "v1", "ConfigMap", "onggi-revisions")
    _configure(server, 443)
    pools = f"/apis/onggi.dev/v1alpha1/namespaces/{TEAM}/kvcachepools"
    for number in range(POOLS):
        _make(server, pools, "onggi.dev/v1alpha1", "KVCachePool", f"chat-{number}", spec={})


def _make(server: Any, path: str, version: str, kind: str, name: str, **fields: Any) -> None:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
    server.apply(path, body)


def _configure(server: Any, port: int) -> None:
    service = {"namespace": SYSTEM, "name": SERVICE, "path": "/mutate", "port": port}
    condition = (
        "has(object.metadata.annotations) &&"
        " object.metadata.annotations.exists(key, key.startsWith('onggi.dev/'))"
    )
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    hook = {
        "name": "inject.onggi.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {"service": service},
        "rules": [{**rule, "resources": ["pods"], "scope": "Namespaced"}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TEAM}},
        "matchConditions": [{"name": "mentions-onggi", "expression": condition}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    version = "admissionregistration.k8s.io/v1"
    _make(server, path, version, "MutatingWebhookConfiguration", "onggi", webhooks=[hook])


def _expose(server: Any, port: int) -> str:
    """The Service leads to this host. The CA that the webhook serves under."""
    services = f"/api/v1/namespaces/{SYSTEM}/services"
    spec = {"type": "ExternalName", "externalName": "localhost"}
    _make(server, services, "v1", "Service", SERVICE, spec=spec)
    _configure(server, port)
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/onggi"
    bundle = server.request("GET", path)["webhooks"][0]["clientConfig"]["caBundle"]
    return base64.b64decode(bundle).decode()
