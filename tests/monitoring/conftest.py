"""What the suites of monitoring share: the chart rendered with all of it on, Debian's Prometheus,
and builders of the control plane's suites."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

TESTS = Path(__file__).resolve().parents[1]
CHART = TESTS.parent / "charts/onggi"


def _load(name: str) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def kit() -> Any:
    return _load("control/inject_kit")


@pytest.fixture(scope="session")
def status_kit() -> Any:
    return _load("control/status_kit")


@pytest.fixture(scope="session")
def apiserver() -> Any:
    """The module that runs API servers."""
    return _load("apiserver")


@pytest.fixture(scope="session")
def server(apiserver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if reason := apiserver.missing():
        pytest.skip(reason)
    with apiserver.run(tmp_path_factory.mktemp("apiserver")) as running:
        yield running


def _tool(name: str) -> str:
    if (found := shutil.which(name)) is None:
        pytest.skip(f"no {name} on this machine (apt-get install prometheus)")
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    return _tool("promtool")


@pytest.fixture(scope="session")
def prometheus_program() -> str:
    return _tool("prometheus")


@pytest.fixture(scope="session")
def render() -> Any:
    """Render the chart with `--set` values."""
    helm = _load("apiserver").find("helm")
    if helm is None:
        pytest.skip("no helm on this machine (the end-to-end harness builds one)")

    def rendered(*values: str) -> list[dict[str, Any]]:
        sets = [word for value in values for word in ("--set", value)]
        done = subprocess.run(
            [helm, "template", "onggi", str(CHART), "-n", "onggi-system", *sets],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return rendered


@pytest.fixture(scope="session")
def documents(render: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """The chart with all of its monitoring, by kind and name."""
    parts = ("serviceMonitor", "podMonitor", "rules", "dashboard")
    found = render(*(f"monitoring.{part}.enabled=true" for part in parts))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}
