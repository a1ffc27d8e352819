"""A real API server without nodes: etcd and kube-apiserver on loopback, in a folder of their own.

What only a real one can tell: that the schema is accepted, what its defaults and CEL messages are,
how status writes, watches, TokenReview and webhook calls behave. Loaded by the conftest files of
the suites that need it (tests are no package, so there is nothing to import it from).
"""

import base64
import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

BIN: Final = Path(os.environ.get("ONGGI_NODE_DIR", Path.home() / ".cache/onggi-node")) / "bin"
ADMIN_TOKEN: Final = "admin-token"
START_TIMEOUT_S: Final = 300
STOP_TIMEOUT_S: Final = 20
PR_SET_PDEATHSIG: Final = 1


def find(tool: str) -> str | None:
    """Path of a tool: the end-to-end harness's own build first, since its version is known."""
    own = BIN / tool
    return str(own) if own.is_file() and os.access(own, os.X_OK) else shutil.which(tool)


def missing() -> str | None:
    """Why there can be no API server here, or None."""
    for tool, hint in (
        ("etcd", "apt-get install etcd-server"),
        ("kube-apiserver", f"the end-to-end harness builds it into {BIN}"),
    ):
        if find(tool) is None:
            return f"no {tool} on this machine ({hint})"
    return None


@dataclass(frozen=True)
class ApiServer:
    """A running server: where it is and how to speak to it as an administrator."""

    url: str
    ca_file: Path
    folder: Path

    def request(self, method: str, path: str, body: object = None, *, kind: str = "") -> Any:
        """One call. Raises Refused with the server's message for any status of 400 and up."""
        return self.request_with_warnings(method, path, body, kind=kind)[0]

    def request_with_warnings(
        self, method: str, path: str, body: object = None, *, kind: str = ""
    ) -> tuple[Any, list[str]]:
        """As `request`, and what kubectl would print as warnings."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {ADMIN_TOKEN}")
        request.add_header("Content-Type", kind or "application/json")
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return json.load(answer), answer.headers.get_all("Warning") or []
        except urllib.error.HTTPError as fault:
            with fault:
                text = fault.read().decode()
            raise Refused(fault.code, text) from None

    def table(self, path: str) -> list[tuple[str, Any]]:
        """The first row as kubectl would print it: column and cell."""
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", f"Bearer {ADMIN_TOKEN}")
        request.add_header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            table = json.load(answer)
        columns = [column["name"] for column in table["columnDefinitions"]]
        return list(zip(columns, table["rows"][0]["cells"], strict=True))

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Server-side apply of one object."""
        return self.request(
            "PATCH",
            f"{path}/{body['metadata']['name']}?fieldManager=test&force=true",
            body,
            kind="application/apply-patch+yaml",
        )


class Refused(Exception):
    """The server's answer, with its message."""

    def __init__(self, status: int, text: str) -> None:
        try:
            message = str(json.loads(text).get("message", text))
        except ValueError:
            message = text
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@contextmanager
def run(folder: Path) -> Iterator[ApiServer]:
    """Start both, wait until ready, and end both whatever happens."""
    etcd_port, peer_port, api_port = free_ports(3)
    _service_account_keys(folder)
    (folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
    etcd = _start(
        folder,
        [
            str(find("etcd")),
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
            "--unsafe-no-fsync" if _etcd_can_skip_fsync() else "--logger=zap",
        ],
    )
    try:
        api = _start(
            folder,
            [
                str(find("kube-apiserver")),
                f"--etcd-servers=http://127.0.0.1:{etcd_port}",
                f"--secure-port={api_port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--cert-dir={folder}/certs",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder}/sa.pub",
                f"--service-account-signing-key-file={folder}/sa.key",
                f"--token-auth-file={folder}/tokens.csv",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
            ],
        )
        try:
            server = ApiServer(
                f"https://127.0.0.1:{api_port}", folder / "certs/apiserver.crt", folder
            )
            _wait_ready(server, api)
            yield server
        finally:
            stop(api)
    finally:
        stop(etcd)


def _wait_ready(server: ApiServer, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            server.request("GET", "/api/v1/namespaces/default")
            return
        except (OSError, Refused) as fault:
            if process.poll() is not None or time.monotonic() > deadline:
                log = (server.folder / "kube-apiserver.log").read_text()[-4000:]
                raise RuntimeError(f"the API server did not start: {fault}\n{log}") from fault
        time.sleep(0.2)


def _start(folder: Path, command: list[str]) -> "subprocess.Popen[bytes]":
    tests = os.getpid()

    def tie() -> None:
        """The child goes when the tests do, however they end; a killed pytest cleans up nothing."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != tests:
            sys.exit(1)

    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, preexec_fn=tie)


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _etcd_can_skip_fsync() -> bool:
    text = subprocess.run([str(find("etcd")), "--help"], capture_output=True, text=True)
    return "unsafe-no-fsync" in text.stdout + text.stderr


def _service_account_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (folder / "sa.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def encoded(text: bytes) -> str:
    """Bytes as the API wants them in JSON."""
    return base64.b64encode(text).decode()


def wait_established(server: ApiServer, name: str) -> None:
    """Until the API server serves a new kind."""
    deadline = time.monotonic() + START_TIMEOUT_S
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    while True:
        found = server.request("GET", path)
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions") or []}
        if conditions.get("Established", {}).get("status") == "True":
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} was not established: {conditions}")
        time.sleep(0.1)


_PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "KVCacheNode": "kvcachenodes",
    "KVCachePool": "kvcachepools",
    "Lease": "leases",
    "LimitRange": "limitranges",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
_CLUSTERED: Final = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "KVCacheNode",
)


def collection(version: str, kind: str, namespace: str) -> str:
    """Where objects of a kind are kept."""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if namespace and kind not in _CLUSTERED:
        root += f"/namespaces/{namespace}"
    return f"{root}/{_PLURALS[kind]}"


def wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until a readiness endpoint answers 200. RuntimeError with the log's end if it never does."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as fault:
            if process.poll() is not None or time.monotonic() > deadline:
                told = log.read_text()[-4000:]
                raise RuntimeError(f"{url} was never ready: {fault}\n{told}") from fault
        time.sleep(0.1)
