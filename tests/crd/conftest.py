"""One API server for the suite, with the schema installed and a namespace to write into."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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
        for kind in (crd, node_crd):
            running.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
            apiserver_module.wait_established(running, kind["metadata"]["name"])
        running.apply(
            "/api/v1/namespaces",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "team-a"},
            },
        )
        yield running


@pytest.fixture(scope="session")
def refused() -> Any:
    return apiserver_module.Refused
