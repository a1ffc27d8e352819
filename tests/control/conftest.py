"""What the suites of the control plane share: an API server with the chart's objects in it, and
webhook and controller as real processes under their own service accounts."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_fixtures import memory_folder

__all__ = ["memory_folder"]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
NAMESPACE = "onggi-system"


def _load(name: str) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


apiserver_module = _load("apiserver")


@pytest.fixture(scope="session")
def apiserver() -> Any:
    """The module that runs API servers, for a test that wants one of its own."""
    return apiserver_module


@pytest.fixture(scope="session")
def kit() -> Any:
    """Builders for injection tests."""
    return _load("control/inject_kit")


@pytest.fixture(scope="session")
def second_injector() -> Any:
    """Another mutating webhook."""
    return _load("control/second_injector")


@pytest.fixture(scope="session")
def api_front() -> Any:
    """Something that stands before the API server."""
    return _load("control/api_front")


@pytest.fixture(scope="session")
def status_kit() -> Any:
    """Builders for the controller's planners."""
    return _load("control/status_kit")


Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> str:
    found: str | None = apiserver_module.find("helm")
    if found is None:
        pytest.skip("no helm on this machine (the end-to-end harness builds one)")
    return found


@pytest.fixture(scope="session")
def render(helm: str) -> Render:
    """Render the chart with `--set` values; RuntimeError with Helm's words when it refuses."""

    def rendered(*values: str) -> list[dict[str, Any]]:
        sets = [word for value in values for word in ("--set", value)]
        done = subprocess.run(
            [helm, "template", "onggi", str(ROOT / "charts/onggi"), "-n", NAMESPACE, *sets],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return rendered


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if reason := apiserver_module.missing():
        pytest.skip(reason)
    with apiserver_module.run(tmp_path_factory.mktemp("apiserver")) as running:
        yield running


class Installed:
    """The chart's objects in the API server; Deployments are run here as processes."""

    def __init__(self, server: Any, documents: list[dict[str, Any]], folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.documents = documents
        self.https_ports: dict[str, int] = {}
        self._apply()

    def _apply(self) -> None:
        self.namespace(NAMESPACE)
        for document in self.documents:
            kind, version = document["kind"], document["apiVersion"]
            if kind in ("Deployment", "Service", "MutatingWebhookConfiguration"):
                continue
            self.server.apply(apiserver_module.collection(version, kind, NAMESPACE), document)
        apiserver_module.wait_established(self.server, "kvcachepools.onggi.dev")

    def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.server.apply("/api/v1/namespaces", body)

    def expose_webhook(self) -> None:
        """The Service leads to this host; the configuration is the chart's but for the port."""
        self.server.apply(
            f"/api/v1/namespaces/{NAMESPACE}/services",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "onggi-webhook", "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
        )
        for document in self.documents:
            if document["kind"] == "MutatingWebhookConfiguration":
                hook = document["webhooks"][0]
                hook["clientConfig"]["service"]["port"] = self.https_ports["webhook"]
                self.server.apply(
                    apiserver_module.collection(document["apiVersion"], document["kind"], ""),
                    document,
                )

    @contextlib.contextmanager
    def process(
        self,
        part: str,
        *,
        api_url: str = "",
        first_on_path: Path | None = None,
        replica: str = "",
    ) -> Iterator["Part"]:
        """Run one part with the environment that its Deployment gives it. `api_url`: of something
        that stands before the API server; `first_on_path`: a folder whose modules come first;
        `replica` tells two of a part apart."""
        running = Part(self, part, api_url or self.server.url, replica)
        if first_on_path is not None:
            paths = f"{first_on_path}:{ROOT}/operator:{ROOT}/sidecar"
            running.overrides["PYTHONPATH"] = paths
        running.start()
        try:
            yield running
        finally:
            running.stop()

    def environment(self, deployment: str) -> dict[str, str]:
        for document in self.documents:
            if document["kind"] == "Deployment" and document["metadata"]["name"] == deployment:
                container = document["spec"]["template"]["spec"]["containers"][0]
                return {entry["name"]: entry["value"] for entry in container["env"]}
        raise LookupError(deployment)

    def token(
        self,
        namespace: str,
        account: str,
        *,
        audience: str | None = None,
        pod: dict[str, Any] | None = None,
    ) -> str:
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if audience:
            spec["audiences"] = [audience]
        if pod:
            meta = pod["metadata"]
            reference = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"]}
            spec["boundObjectRef"] = {**reference, "uid": meta["uid"]}
        answer = self.server.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return str(answer["status"]["token"])


class Part:
    """One process; it keeps its ports over a restart, as a Service would."""

    def __init__(self, installed: Installed, name: str, api_url: str, replica: str) -> None:
        self._installed = installed
        self._api_url = api_url
        self._name = name
        self._replica = replica
        self.https_port, self.health_port = apiserver_module.free_ports(2)
        self.log = installed.folder / f"{name}{replica}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.overrides: dict[str, str] = {}
        """Of the environment that the Deployment gives it, from the next start on."""
        self.prefix: list[str] = []
        """Words in front of the command, from the next start on."""

    def start(self) -> None:
        installed, name = self._installed, self._name
        account = "onggi-webhook" if name == "webhook" else "onggi-operator"
        token = installed.folder / f"{name}{self._replica}.token"
        token.write_text(installed.token(NAMESPACE, account))
        installed.https_ports[name] = self.https_port
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}/operator:{ROOT}/sidecar",
            **installed.environment(account),
            "ONGGI_API_SERVER": self._api_url,
            "ONGGI_API_CA_FILE": str(installed.server.ca_file),
            "ONGGI_API_TOKEN_FILE": str(token),
            "ONGGI_LISTEN_HOST": "127.0.0.1",
            "ONGGI_HTTPS_PORT": str(self.https_port),
            "ONGGI_HEALTH_PORT": str(self.health_port),
            **self.overrides,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "onggi_operator", name],
                env=env,
                stdout=log,
                stderr=log,
            )
        if name == "webhook":
            installed.expose_webhook()
        url = f"http://127.0.0.1:{self.health_port}/readyz"
        apiserver_module.wait_ready(url, self.process, self.log)

    def histogram(self, name: str, *, above_s: float) -> tuple[int, int]:
        """From the metrics: how many took longer, and how many there were."""
        url = f"http://127.0.0.1:{self.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(name))
        count = int(float(values[f"{name}_count"]))
        return count - int(float(values[f'{name}_bucket{{le="{above_s}"}}'])), count

    def stop(self) -> int:
        """Ends it as a kubelet would, and says how it ended."""
        assert self.process is not None
        apiserver_module.stop(self.process)
        return int(self.process.returncode)


@pytest.fixture(scope="session")
def installed_class() -> type[Installed]:
    """For a suite that installs the chart with values of its own."""
    return Installed


@pytest.fixture(scope="session")
def installed(server: Any, render: Render, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    documents = render("operator.statusIntervalSeconds=2")
    return Installed(server, documents, tmp_path_factory.mktemp("processes"))
