"""The hint that SGLang's plugin gives, the flags in it, and that it is never in the way."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from onggi.connectors.sglang import plugin
from onggi.connectors.sglang.options import read_options

COMMAND = ["/lib/sglang/launch_server.py", "--model-path", "m"]


def hints(caplog: Any) -> list[str]:
    return [one.getMessage() for one in caplog.records if "to use it add" in one.getMessage()]


@pytest.mark.parametrize(
    ("socket", "more", "hinted"),
    [
        ("/s", [], True),
        ("/s", ["--enable-hierarchical-cache"], True),
        ("", [], False),
        ("/s", ["--hicache-storage-backend", "dynamic"], False),
        ("/s", ["--hicache-storage-backend=mooncake"], False),
        ("/s", ["--config", "server.yaml"], False),
    ],
)
def test_the_hint_comes_where_an_agent_is_at_hand_and_unused(
    monkeypatch: Any, caplog: Any, socket: str, more: list[str], hinted: bool
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("ONGGI_SOCKET", socket)
    monkeypatch.setattr(sys, "argv", [*COMMAND, *more])
    plugin.register()
    assert bool(hints(caplog)) is hinted


def test_only_a_servers_command_is_judged() -> None:
    env = {"ONGGI_SOCKET": "/s"}
    assert plugin.wanted(["/usr/bin/sglang", "serve", "m"], env)
    assert not plugin.wanted(["my_program.py"], env)
    assert not plugin.wanted([], env)


def test_its_worker_processes_say_nothing(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("ONGGI_SOCKET", "/s")
    monkeypatch.setattr(sys, "argv", COMMAND)
    monkeypatch.setattr(plugin.multiprocessing, "parent_process", object)
    plugin.register()
    assert hints(caplog) == []


def test_a_misspelt_variable_is_told(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("ONGGI_TENNANT", "a")
    plugin.register()
    assert "did you mean ONGGI_TENANT?" in caplog.text


def test_a_hint_that_fails_is_no_end_of_the_engine(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("ONGGI_SOCKET", "/s")
    monkeypatch.setattr(plugin, "wanted", lambda *_: 1 / 0)
    plugin.register()
    assert "the plugin failed; the engine goes on" in caplog.text


def test_the_hinted_config_is_one_that_the_backend_takes() -> None:
    (flag,) = [one for one in plugin.FLAGS if "extra-config" in one]
    config = json.loads(flag.split("'")[1])
    options = read_options(config, {"ONGGI_SOCKET": "/s"})
    assert (options.socket, options.interface_v1) == ("/s", True)
    module = sys.modules["onggi.connectors.sglang"]
    assert config["module_path"] == module.__name__
    assert config["class_name"] in module.__all__
