"""An API server with the chart's objects in it, and the controller beside it, under the rights and
the settings that the chart gives it."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.machine import ROOT
from bench.servers import SYSTEM, CannotMeasure, api_server, program

ACCOUNT: Final = "onggi-operator"
HOST: Final = f"{ACCOUNT}.{SYSTEM}.svc"
"""The name that the controller's certificate is for."""

ELSEWHERE: Final = ("Deployment", "Service", "MutatingWebhookConfiguration")
"""Kinds of the chart that stand for processes, which are started here."""


@dataclass(frozen=True)
class Site:
    """Where everything listens, and the controller's process."""

    server: Any
    admin_token: str
    pid: int
    port: int
    health_url: str
    ca_pem: str


@contextmanager
def running(base: Path) -> Iterator[Site]:
    """Raises CannotMeasure where a server is missing."""
    with api_server(base) as there:
        documents = _chart(there.tools.find("helm"))
        _apply(there.tools, there.server, documents)
        token, settings = _token(there.server), _environment(documents)
        with program(there, "controller", token=token, settings=settings) as controller:
            yield Site(
                there.server,
                there.tools.ADMIN_TOKEN,
                controller.pid,
                controller.port,
                controller.health_url,
                _authority(there.server),
            )


def _chart(helm: str | None) -> list[dict[str, Any]]:
    if helm is None:
        raise CannotMeasure("no helm on this machine (the end-to-end harness builds one)")
    command = [helm, "template", "onggi", str(ROOT / "charts/onggi"), "-n", SYSTEM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _apply(apiserver: Any, server: Any, documents: list[dict[str, Any]]) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    server.apply("/api/v1/namespaces", namespace)
    for document in documents:
        kind, version = document["kind"], document["apiVersion"]
        if kind not in ELSEWHERE:
            server.apply(apiserver.collection(version, kind, SYSTEM), document)
    for plural in ("kvcachepools", "kvcachenodes"):
        apiserver.wait_established(server, f"{plural}.onggi.dev")


def _environment(documents: list[dict[str, Any]]) -> Mapping[str, str]:
    """What the Deployment gives the controller, as far as it can be known without a kubelet."""
    for document in documents:
        if document["kind"] == "Deployment" and document["metadata"]["name"] == ACCOUNT:
            container = document["spec"]["template"]["spec"]["containers"][0]
            return {one["name"]: one["value"] for one in container["env"] if "value" in one}
    raise CannotMeasure(f"the chart has no Deployment {ACCOUNT}")


def _token(server: Any) -> str:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    }
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{ACCOUNT}/token"
    return str(server.request("POST", path, body)["status"]["token"])


def _authority(server: Any) -> str:
    """What agents trust."""
    secret = server.request("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/onggi-tls")
    return base64.b64decode(secret["data"]["ca.crt"]).decode()
