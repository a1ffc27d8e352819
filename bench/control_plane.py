"""A real API server and the real webhook beside it, as a bench needs them: no nodes, no rights."""

from __future__ import annotations

import base64
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.children import start_child, stop_child
from bench.machine import ROOT

SYSTEM: Final = "onggi-system"
TEAM: Final = "team"
SERVICE: Final = "onggi-webhook"
HOST: Final = f"{SERVICE}.{SYSTEM}.svc"
"""The name that the webhook's certificate is for."""

POOLS: Final = 50


class CannotMeasure(Exception):
    """What is missing here."""


@dataclass(frozen=True)
class ControlPlane:
    """What is running: the API server, and where the webhook listens."""

    server: Any
    admin_token: str
    webhook_url: str
    ca_pem: str


@contextmanager
def running(base: Path) -> Iterator[ControlPlane]:
    apiserver = load_apiserver()
    if reason := apiserver.missing():
        raise CannotMeasure(reason)
    with apiserver.run(base) as server:
        _prepare(apiserver, server)
        https, health = apiserver.free_ports(2)
        log = base / "webhook.log"
        process = start_child(
            [sys.executable, "-m", "onggi_operator", "webhook"],
            log,
            env=_environment(apiserver, server, base, https, health),
        )
        try:
            apiserver.wait_ready(f"http://127.0.0.1:{health}/readyz", process, log)
            ca_pem = _expose(server, https)
            yield ControlPlane(
                server, apiserver.ADMIN_TOKEN, f"https://127.0.0.1:{https}/mutate", ca_pem
            )
        finally:
            stop_child(process)


def load_apiserver() -> Any:
    """The module that the tests start theirs with; tests are no package."""
    spec = importlib.util.spec_from_file_location("apiserver", ROOT / "tests/apiserver.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["apiserver"] = module
    spec.loader.exec_module(module)
    return module


def _environment(
    apiserver: Any, server: Any, base: Path, https: int, health: int
) -> dict[str, str]:
    token = base / "webhook.token"
    token.write_text(apiserver.ADMIN_TOKEN)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/operator:{ROOT}/sidecar",
        "ONGGI_RELEASE_NAMESPACE": SYSTEM,
        "ONGGI_TLS_SECRET": "onggi-tls",
        "ONGGI_WEBHOOK_SERVICE": SERVICE,
        "ONGGI_OPERATOR_SERVICE": "onggi-operator",
        "ONGGI_WEBHOOK_CONFIGURATION": "onggi",
        "ONGGI_REVISIONS_CONFIG_MAP": "onggi-revisions",
        "ONGGI_AGENT_IMAGE": "onggi/agent:bench",
        "ONGGI_API_SERVER": server.url,
        "ONGGI_API_CA_FILE": str(server.ca_file),
        "ONGGI_API_TOKEN_FILE": str(token),
        "ONGGI_LISTEN_HOST": "127.0.0.1",
        "ONGGI_HTTPS_PORT": str(https),
        "ONGGI_HEALTH_PORT": str(health),
    }


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
