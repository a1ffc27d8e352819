"""One API server for the suite, upgraded from the first schema to today's."""

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS_OF_BEFORE = "/apis/onggi.dev/v1alpha1/namespaces/of-before/kvcachepools"
MERGE = "application/merge-patch+json"
UPGRADE_S = 60

STORED = Path(__file__).parent / "stored"
TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent


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


def _schema(plural: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / f"crds/v1alpha1/{plural}.yaml").read_text())
    return loaded


@pytest.fixture(scope="session")
def crd() -> dict[str, Any]:
    return _schema("kvcachepools")


@pytest.fixture(scope="session")
def node_crd() -> dict[str, Any]:
    return _schema("kvcachenodes")


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, crd: dict[str, Any], node_crd: dict[str, Any]
) -> Iterator[Any]:
    if reason := apiserver_module.missing():
        pytest.skip(reason)
    with apiserver_module.run(tmp_path_factory.mktemp("apiserver")) as running:
        for name in ("team-a", "of-before"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            running.apply("/api/v1/namespaces", body)
        _store_objects_of_before(running)
        for kind in (crd, node_crd):
            running.apply(CRDS, kind)
            apiserver_module.wait_established(running, kind["metadata"]["name"])
        _wait_upgraded(running)
        yield running


def _store_objects_of_before(server: Any) -> None:
    """With the schema of the first chart, and a status as its operator wrote one."""
    schema = yaml.safe_load((STORED / "kvcachepools.yaml").read_text())
    server.apply(CRDS, schema)
    apiserver_module.wait_established(server, schema["metadata"]["name"])
    for body in yaml.safe_load_all((STORED / "objects.yaml").read_text()):
        path = f"{POOLS_OF_BEFORE}/{body['metadata']['name']}/status"
        server.request("POST", POOLS_OF_BEFORE, body)
        server.request("PATCH", path, {"status": {"tokensSaved": 1200}}, kind=MERGE)


def _wait_upgraded(server: Any) -> None:
    """Until objects are served with today's defaults: a schema takes hold a moment after it was
    written."""
    deadline = time.monotonic() + UPGRADE_S
    while "placement" not in server.request("GET", f"{POOLS_OF_BEFORE}/bare")["spec"]:
        assert time.monotonic() < deadline, "the new schema never took hold"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def refused() -> Any:
    return apiserver_module.Refused
