"""docs/vllm.md, done as it says: a server with the plugin alone, then by the printed command."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, HERE, SIDECAR, AgentProcess
from server_process import ServerProcess, free_port, printed_command

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PROMPT = [random.Random(1).randrange(4000) for _ in range(20 * BLOCK + 7)]
ON_CPU = ("--dtype", "float32", "--max-model-len", "2048", "--block-size", str(BLOCK))
"""What this machine needs; the rest of the command is the page's."""


@pytest.fixture(scope="module")
def words(python: str, folder: Path) -> list[str]:
    """The printed command, with this machine's Python and a model that has a tokenizer."""
    model = str(folder / "model")
    script = HERE.parents[1] / "e2e" / "engine" / "model.py"
    subprocess.run([python, str(script), model], check=True, capture_output=True)
    begins = "python -m vllm.entrypoints.openai.api_server"
    printed = printed_command("vllm.md", begins, '"OnggiConnector"')
    return [{"python": python, "MODEL": model}.get(word, word) for word in printed]


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "run", memory="256MiB", http_port=free_port()) as agent:
        yield agent


def serve(command: list[str], folder: Path, name: str, socket: str) -> ServerProcess:
    env = {
        "PYTHONPATH": str(folder / "client"),
        "ONGGI_SOCKET": socket,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return ServerProcess([*command, *ON_CPU], folder / name, env)


def answer(server: ServerProcess) -> str:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    text: str = server.post("/v1/completions", body)["choices"][0]["text"]
    return text


@pytest.fixture(scope="module")
def by_plugin(words: list[str], folder: Path, agent: AgentProcess) -> dict[str, Any]:
    command = words[: words.index("--kv-transfer-config")]
    with serve(command, folder, "plugin.log", agent.socket) as server:
        seen: dict[str, Any] = {"answer": answer(server), "again": answer(server)}
        seen["loaded"] = server.metric("vllm:onggi_loaded_tokens_host_total")
        seen["doctor"] = doctor(agent)
        seen["log"] = server.log.read_text(errors="replace")
    return seen


@pytest.fixture(scope="module")
def by_flags(
    words: list[str], folder: Path, agent: AgentProcess, by_plugin: dict[str, Any]
) -> dict[str, Any]:
    with serve(words, folder, "flags.log", agent.socket) as server:
        seen: dict[str, Any] = {"answer": answer(server)}
        seen["loaded"] = server.metric("vllm:onggi_loaded_tokens_host_total")
        seen["log"] = server.log.read_text(errors="replace")
    return seen


def doctor(agent: AgentProcess) -> dict[str, Any]:
    env = {
        **os.environ,
        "PYTHONPATH": str(SIDECAR),
        "ONGGI_AGENT_HTTP_PORT": str(agent.http_port),
    }
    command = [sys.executable, "-m", "onggi_sidecar", "doctor", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["figures"]
    return found


def test_the_plugin_turns_it_on_and_says_so(by_plugin: dict[str, Any], agent: AgentProcess) -> None:
    said = f"onggi: connector turned on; agent expected at {agent.socket}"
    assert said in by_plugin["log"]


def test_the_same_prompt_again_is_the_engines_own_affair(by_plugin: dict[str, Any]) -> None:
    assert by_plugin["again"] == by_plugin["answer"]
    assert by_plugin["loaded"] == 0


def test_the_doctor_says_who_is_attached(by_plugin: dict[str, Any]) -> None:
    engines = [client["engine"] for client in by_plugin["doctor"]["clients"]]
    assert any(engine.startswith("vllm") for engine in engines)


def test_after_a_restart_by_the_printed_command_its_tokens_are_counted(
    by_plugin: dict[str, Any], by_flags: dict[str, Any]
) -> None:
    assert by_flags["answer"] == by_plugin["answer"]
    assert by_flags["loaded"] == 20 * BLOCK


def test_a_command_that_says_it_itself_keeps_the_plugin_back(by_flags: dict[str, Any]) -> None:
    assert "onggi: connector turned on" not in by_flags["log"]
