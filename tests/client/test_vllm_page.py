"""docs/vllm.md, done as it says: a server as the README starts it, with the plugin alone, and one
by each printed command."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, HERE, SIDECAR, STEPS, WAIT_S, AgentProcess
from offloading_on_cpu import install
from server_process import DOCS, ServerProcess, free_port, printed, printed_command

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

TOKENS = 20 * BLOCK
PROMPTS = [
    [dice.randrange(4000) for _ in range(TOKENS + 7)] for dice in map(random.Random, range(1, 9))
]
"""More than one: the printed commands have the usual deadlines, which a busy machine may miss."""
ON_CPU = ("--dtype", "float32", "--max-model-len", "2048", "--block-size", str(BLOCK))
"""What this machine needs; the rest of the command is the page's."""


@pytest.fixture(scope="module")
def model(python: str, folder: Path) -> str:
    """One that has a tokenizer."""
    path = str(folder / "model")
    script = HERE.parents[1] / "e2e" / "engine" / "model.py"
    subprocess.run([python, str(script), path], check=True, capture_output=True)
    return path


def command_of(connector: str, python: str, model: str) -> list[str]:
    """The command of the page, with this machine's Python and model."""
    begins = "python -m vllm.entrypoints.openai.api_server"
    words = printed_command("vllm.md", begins, f'"{connector}"')
    return [{"python": python, "MODEL": model}.get(word, word) for word in words]


def lines_of_the_readme(folder: Path, python: str, model: str, socket: str) -> list[str]:
    """Both of them, by a shell, with this machine's places."""
    lines = printed("../README.md", "onggi install-client").rstrip()
    for there, here in (
        ("~/onggi-client", str(folder / "readme")),
        ("/dev/shm/onggi/agent.sock", socket),
        ("python -m", f"exec {python} -m"),
        ("MODEL", model),
    ):
        assert there in lines
        lines = lines.replace(there, here)
    ours = f'onggi() {{ PYTHONPATH={SIDECAR} {sys.executable} -m onggi_sidecar "$@"; }}'
    return ["bash", "-euc", f'{ours}\n{lines} "$@"', "readme"]


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "run", memory="256MiB", http_port=free_port()) as agent:
        yield agent


def serve(command: list[str], folder: Path, name: str, socket: str, *more: Path) -> ServerProcess:
    env = {
        "PYTHONPATH": os.pathsep.join(map(str, (folder / "client", *more))),
        "ONGGI_SOCKET": socket,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return ServerProcess([*command, *ON_CPU], folder / name, env)


def answers(server: ServerProcess) -> list[str]:
    how = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    said = [server.post("/v1/completions", {"prompt": one, **how}) for one in PROMPTS]
    return [one["choices"][0]["text"] for one in said]


@pytest.fixture(scope="module")
def by_plugin(python: str, model: str, folder: Path, agent: AgentProcess) -> dict[str, Any]:
    command = lines_of_the_readme(folder, python, model, agent.socket)
    with serve(command, folder, "plugin.log", "") as server:
        seen: dict[str, Any] = {"answers": answers(server), "again": answers(server)}
        seen["loaded"] = server.metric("vllm:onggi_loaded_tokens_host_total")
        seen["doctor"] = doctor(agent)
        seen["log"] = server.log.read_text(errors="replace")
    return seen


@pytest.fixture(scope="module")
def by_flags(
    python: str, model: str, folder: Path, agent: AgentProcess, by_plugin: dict[str, Any]
) -> dict[str, Any]:
    command = command_of("OnggiConnector", python, model)
    with serve(command, folder, "flags.log", agent.socket) as server:
        seen: dict[str, Any] = {"answers": answers(server)}
        seen["loaded"] = as_printed(server)
        seen["log"] = server.log.read_text(errors="replace")
    return seen


def as_printed(server: ServerProcess) -> float:
    """What the page's own line for looking shows."""
    (line,) = re.findall(
        r"`(curl -s localhost:8000/metrics [^`]+)`", (DOCS / "vllm.md").read_text()
    )
    if shutil.which("curl") is None:
        return server.metric("vllm:onggi_loaded_tokens_host_total")
    line = line.replace("8000", str(server.port))
    said = subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
    (shown,) = re.findall(r"^vllm:onggi_loaded_tokens_host_total\S* (\S+)$", said, re.MULTILINE)
    return float(shown)


def handed_on(server: ServerProcess) -> None:
    """Wait until what was computed has gone on to the tier, which happens beside later steps."""
    until_s = time.monotonic() + WAIT_S
    name = "vllm:kv_offload_tiering"
    while True:
        server.post("/v1/completions", {"prompt": STEPS["ids"], "max_tokens": 8, "temperature": 0})
        if server.metric(f"{name}_write_bytes_total") and not server.metric(
            f"{name}_active_cascade_jobs"
        ):
            return
        assert time.monotonic() < until_s, server.tail()


@pytest.fixture(scope="module")
def by_tier(
    python: str, model: str, folder: Path, agent: AgentProcess, by_plugin: dict[str, Any]
) -> dict[str, Any]:
    """Two lives behind vLLM's own offloading, with a stand-in for copies that are CUDA's alone."""
    command = command_of("OnggiOffloadingConnector", python, model)
    install(folder / "cpu")
    with serve(command, folder, "tier.log", agent.socket, folder / "cpu") as server:
        seen: dict[str, Any] = {"answers": [answers(server)]}
        handed_on(server)
    with serve(command, folder, "tier.log", agent.socket, folder / "cpu") as server:
        seen["answers"].append(answers(server))
        seen["read"] = server.metric("vllm:kv_offload_tiering_read_bytes_total")
        seen["faults"] = server.metric("vllm:onggi_tier_faults_total")
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
    assert by_plugin["again"] == by_plugin["answers"]
    assert by_plugin["loaded"] == 0


def test_the_doctor_says_who_is_attached(by_plugin: dict[str, Any]) -> None:
    engines = [client["engine"] for client in by_plugin["doctor"]["clients"]]
    assert any(engine.startswith("vllm") for engine in engines)


def test_after_a_restart_by_the_printed_command_its_tokens_are_counted(
    by_plugin: dict[str, Any], by_flags: dict[str, Any]
) -> None:
    assert by_flags["answers"] == by_plugin["answers"]
    assert TOKENS <= by_flags["loaded"] <= len(PROMPTS) * TOKENS


def test_behind_vllms_own_offloading_by_the_printed_command_a_restart_finds_blocks(
    by_plugin: dict[str, Any], by_tier: dict[str, Any]
) -> None:
    assert by_tier["answers"] == [by_plugin["answers"]] * 2
    assert by_tier["read"] > 0
    assert by_tier["faults"] == 0


def test_a_command_that_says_it_itself_keeps_the_plugin_back(by_flags: dict[str, Any]) -> None:
    assert "onggi: connector turned on" not in by_flags["log"]
