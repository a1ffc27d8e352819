"""Turning the connector on, with a stand-in for vLLM: it must never be in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from onggi.connectors.vllm import plugin

SIDECAR = Path(__file__).parents[2] / "sidecar"


class EngineArgs:
    """The part of vLLM's EngineArgs that the plugin touches."""

    encoder_decoder = False
    refuses_connectors = False

    def __init__(self, kv_transfer_config: Any = None, kv_offloading_size: Any = None) -> None:
        self.kv_transfer_config = kv_transfer_config
        self.kv_offloading_size = kv_offloading_size

    def create_engine_config(self, usage: str = "") -> Any:
        if self.refuses_connectors and self.kv_transfer_config is not None:
            raise ValueError("no connector, please")
        model = SimpleNamespace(is_encoder_decoder=self.encoder_decoder)
        return SimpleNamespace(
            model_config=model, kv_transfer_config=self.kv_transfer_config, usage=usage
        )


FACTORY = "vllm.distributed.kv_transfer.kv_connector.factory"


class Factory:
    """As vLLM's KVConnectorFactory, for names."""

    names: ClassVar[dict[str, tuple[str, str]]]

    @classmethod
    def register_connector(cls, name: str, module_path: str, class_name: str) -> None:
        if name in cls.names:
            raise ValueError(f"Connector '{name}' is already registered.")
        cls.names[name] = (module_path, class_name)


@pytest.fixture
def engine_args(monkeypatch: pytest.MonkeyPatch) -> type[EngineArgs]:
    """A fresh class each time, since the plugin wraps it."""
    fresh = type("EngineArgs", (EngineArgs,), {})
    fresh.create_engine_config = EngineArgs.create_engine_config  # type: ignore[attr-defined]
    connectors = "vllm.distributed.kv_transfer.kv_connector"
    parts = [connectors.rsplit(".", up)[0] for up in range(3)]
    names = ["vllm", *parts, FACTORY, "vllm.engine", "vllm.engine.arg_utils", "vllm.config"]
    modules = {name: ModuleType(name) for name in names}
    modules[FACTORY].KVConnectorFactory = type(  # type: ignore[attr-defined]
        "KVConnectorFactory", (Factory,), {"names": {}}
    )
    modules["vllm.engine.arg_utils"].EngineArgs = fresh  # type: ignore[attr-defined]
    modules["vllm.config"].KVTransferConfig = SimpleNamespace  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("ONGGI_SOCKET", "/run/onggi/agent.sock")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    return fresh


def made(engine_args: type[EngineArgs], **kwargs: Any) -> Any:
    return engine_args(**kwargs).create_engine_config("x")


def test_it_turns_the_connector_on(engine_args: type[EngineArgs]) -> None:
    plugin.register()
    config = made(engine_args)
    assert vars(config.kv_transfer_config) == {
        "kv_connector": "OnggiConnector",
        "kv_connector_module_path": "onggi.connectors.vllm",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
    }
    assert config.usage == "x"


def test_registering_twice_wraps_once(engine_args: type[EngineArgs]) -> None:
    plugin.register()
    once = engine_args.create_engine_config
    plugin.register()
    assert engine_args.create_engine_config is once


def test_several_connectors_find_ours_by_its_name(
    engine_args: type[EngineArgs], caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it is left to the user, and said twice."""
    plugin.register()
    plugin.register()
    names = sys.modules[FACTORY].KVConnectorFactory.names
    assert names == {"OnggiConnector": ("onggi.connectors.vllm", "OnggiConnector")}
    extra = {"connectors": [{"kv_connector": "Theirs"}, {"kv_connector": "OnggiConnector"}]}
    both = SimpleNamespace(kv_connector="MultiConnector", kv_connector_extra_config=extra)
    assert made(engine_args, kv_transfer_config=both).kv_transfer_config is both
    assert not caplog.records


def test_it_stands_back_from_what_the_user_set(
    engine_args: type[EngineArgs], caplog: pytest.LogCaptureFixture
) -> None:
    plugin.register()
    theirs = SimpleNamespace(kv_connector="NixlConnector")
    assert made(engine_args, kv_transfer_config=theirs).kv_transfer_config is theirs
    assert "names NixlConnector already; take it out, or name OnggiConnector" in caplog.text
    assert made(engine_args, kv_offloading_size=4).kv_transfer_config is None
    assert "kv_offloading_size is 4; take it out, or name OnggiOffloadingC" in caplog.text


def test_it_stands_back_where_a_connector_would_stop_the_engine(
    engine_args: type[EngineArgs],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin.register()
    engine_args.encoder_decoder = True
    assert made(engine_args).kv_transfer_config is None
    engine_args.encoder_decoder = False
    engine_args.refuses_connectors = True
    assert made(engine_args).kv_transfer_config is None
    assert "no connector, please" in caplog.text
    engine_args.refuses_connectors = False
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert made(engine_args).kv_transfer_config is None


def test_without_a_socket_it_does_nothing_and_says_so_once_an_engine(
    engine_args: type[EngineArgs],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.delenv("ONGGI_SOCKET")
    before = engine_args.create_engine_config
    plugin.register()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "of a rank")
    plugin.register()
    assert engine_args.create_engine_config is before
    said = "the client is here and takes no part; to use it set ONGGI_SOCKET to the path of an"
    assert caplog.text.count(said) == 1


def test_where_the_flags_are_the_users_it_stands_back(
    engine_args: type[EngineArgs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONGGI_CONFIGURE", "Manual")
    plugin.register()
    assert made(engine_args).kv_transfer_config is None
    monkeypatch.setenv("ONGGI_CONFIGURE", "Auto")
    plugin.register()
    assert made(engine_args).kv_transfer_config is not None


def test_an_engine_it_does_not_know_is_left_alone(
    engine_args: type[EngineArgs], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", ModuleType("empty"))
    plugin.register()
    assert "could not register" in caplog.text


def test_importing_the_package_by_name_imports_no_engine() -> None:
    """vLLM does so in its front-end process, where every second of start counts."""
    code = (
        "import sys, onggi.connectors.vllm, onggi.connectors.vllm.plugin\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SIDECAR)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_misspelt_variable_is_told_and_those_of_a_service_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant that nobody reads would share its blocks with everybody."""
    for name, value in {
        "ONGGI_TENNANT": "a",
        "ONGGI_SOCKT": "/s",
        "ONGGI_PORT": "tcp://10.0.0.1:80",
        "ONGGI_SERVICE_HOST": "10.0.0.1",
        "ONGGI_HOME": "/o",
        "ONGGI_CONFIGURE": "Manual",
        "ONGGI_MODEL_REVISION": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ONGGI_SOCKET", raising=False)
    plugin.register()
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said == [
        "onggi: ONGGI_SOCKT is no variable of Onggi's and was not read; did you mean ONGGI_SOCKET?",
        "onggi: ONGGI_TENNANT is no variable of Onggi's and was not read; did you mean "
        "ONGGI_TENANT?",
    ]
