"""A real API server, and Onggi's programs beside it, as benches of the control plane need them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.children import start_child, stop_child
from bench.machine import ROOT

SYSTEM: Final = "onggi-system"


class CannotMeasure(Exception):
    """What is missing here."""


@dataclass(frozen=True)
class Servers:
    """A running API server. `tools` is the module that the tests start theirs with."""

    tools: Any
    server: Any
    base: Path


@dataclass(frozen=True)
class Program:
    """One that runs: its pid, and where it listens."""

    pid: int
    port: int
    health_url: str


@contextmanager
def api_server(base: Path) -> Iterator[Servers]:
    """Raises CannotMeasure where there can be none."""
    tools = load_apiserver()
    if reason := tools.missing():
        raise CannotMeasure(reason)
    with tools.run(base) as server:
        yield Servers(tools, server, base)


@contextmanager
def program(
    there: Servers, name: str, *, token: str, settings: Mapping[str, str]
) -> Iterator[Program]:
    """`webhook` or `controller`, once it is ready; `token` is what it shows the API server."""
    https, health = there.tools.free_ports(2)
    token_file, log = there.base / f"{name}.token", there.base / f"{name}.log"
    token_file.write_text(token)
    env = {
        **settings,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/operator:{ROOT}/sidecar",
        "ONGGI_API_SERVER": there.server.url,
        "ONGGI_API_CA_FILE": str(there.server.ca_file),
        "ONGGI_API_TOKEN_FILE": str(token_file),
        "ONGGI_LISTEN_HOST": "127.0.0.1",
        "ONGGI_HTTPS_PORT": str(https),
        "ONGGI_HEALTH_PORT": str(health),
    }
    process = start_child([sys.executable, "-m", "onggi_operator", name], log, env=env)
    try:
        url = f"http://127.0.0.1:{health}"
        there.tools.wait_ready(f"{url}/readyz", process, log)
        yield Program(process.pid, https, url)
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
