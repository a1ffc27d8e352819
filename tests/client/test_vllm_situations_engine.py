"""Situations of a real vLLM that the other engine tests do not meet, one engine or two for each.

Models of several groups on two ranks, layers on two ranks, prompts of embeddings, the engine's
event stream, and a disk that went bad under each of vLLM's two policies for loads that fail.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from engine_harness import HERE, AgentProcess, EngineProcess

from onggi_sidecar.install_client import install_client

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

BLOCK = 32
RANKS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    "OMP_NUM_THREADS": "1",
}
"""Two ranks, each process its own."""


def prompt(seed: int, length: int, **more: Any) -> dict[str, Any]:
    rng = random.Random(seed)
    return {"ids": [rng.randrange(512) for _ in range(length)], **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("situations")
    install_client(folder / "client")
    return folder


@pytest.fixture
def start(python: str, folder: Path, tmp_path: Path) -> Any:
    def start(socket: str, family: str = "grouped", **more: Any) -> EngineProcess:
        model = folder / family
        if not model.exists():
            command = [python, str(HERE / "tiny_model.py"), str(model), "1", family]
            subprocess.run(command, check=True, capture_output=True)
        more.setdefault("num_gpu_blocks_override", 600)
        log = tmp_path / "engine.log"
        return EngineProcess(python, folder / "client", socket, log, model=str(model), **more)

    return start


@pytest.fixture
def make_agent(tmp_path: Path) -> Any:
    made: list[AgentProcess] = []

    def make(**more: Any) -> AgentProcess:
        (tmp_path / "run").mkdir()
        made.append(AgentProcess(tmp_path / "run", **more).start())
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


PROMPTS = [prompt(1, 1500), prompt(2, 400), prompt(3, 700, salt="a")]


@pytest.mark.parametrize(
    ("family", "parallel"),
    [("hybrid", "tensor"), ("grouped", "pipeline"), ("hybrid", "pipeline")],
)
def test_ranks_find_their_own_parts_again(
    start: Any, make_agent: Any, family: str, parallel: str
) -> None:
    agent = make_agent(memory="96MiB", disk="256MiB")
    more: dict[str, Any] = {"family": family, "env": RANKS, f"{parallel}_parallel_size": 2}
    with start("", **more) as bare:
        right = bare.generate(*PROMPTS, max_tokens=20)["tokens"]
    with start(agent.socket, **more) as engine:
        assert engine.generate(*PROMPTS, max_tokens=20)["tokens"] == right
        time.sleep(1.0)
        engine.generate(prompt(90, 40))
        assert engine.ask(do="reset") == {"reset": True}
        warm = engine.generate(*PROMPTS, max_tokens=20)
        assert warm["tokens"] == right
        assert warm["cached"] == [46 * BLOCK, 12 * BLOCK, 21 * BLOCK]
        engine.generate(prompt(91, 40))
        metrics = engine.metrics()
    assert metrics["vllm:onggi_loaded_tokens_host"] == (46 + 12 + 21) * BLOCK
    assert metrics["vllm:onggi_failed_load_blocks"] == 0
    assert metrics["vllm:onggi_faults"] == 0


def test_prompts_of_embeddings_find_their_own_and_no_others(start: Any, make_agent: Any) -> None:
    agent = make_agent()
    mine = {"embeds": {"seed": 1, "length": 300, "width": 256}}
    other = {"embeds": {**mine["embeds"], "seed": 2}}
    zeros = {"ids": [0] * 300}  # what vLLM writes for tokens where embeddings are
    more = {"enable_prompt_embeds": True}
    with start("", **more) as bare:
        right = [bare.generate(one)["tokens"] for one in (mine, other, zeros)]
    with start(agent.socket, **more) as engine:
        seen = [engine.generate(one) for one in (mine, other, zeros)]
        assert [one["cached"] for one in seen] == [[0]] * 3
        time.sleep(0.5)
        engine.generate(prompt(90, 40))
        engine.ask(do="reset")
        again = [engine.generate(one) for one in (mine, other, zeros)]
        assert [one["cached"] for one in again] == [[9 * BLOCK]] * 3
        assert [one["tokens"] for one in seen] == right
        assert [one["tokens"] for one in again] == right
        assert engine.metrics()["vllm:onggi_faults"] == 0


def test_the_engines_stream_tells_what_the_agent_keeps(
    start: Any, make_agent: Any, tmp_path: Path
) -> None:
    agent = make_agent()
    endpoint = f"ipc://{tmp_path}/events"
    listened = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
    with start(agent.socket, kv_events_config=listened) as engine:
        engine.ask(do="events", endpoint=endpoint)
        engine.generate(PROMPTS[1])
        time.sleep(0.5)
        engine.generate(prompt(90, 40))
        heard = engine.ask(do="events", endpoint=endpoint)["events"]
        engine.ask(do="reset", connector=True)
        engine.generate(prompt(91, 40))
        after = engine.ask(do="events", endpoint=endpoint)["events"]
    ours = [one for one in heard if one.get("ownership") == "onggi"]
    assert {(one["type"], one["medium"], one["locality"]) for one in ours} == {
        ("BlockStored", "CPU", "LOCAL")
    }
    kept = {name for one in ours for name in one["block_hashes"]}
    device = [one for one in heard if one["type"] == "BlockStored" and one not in ours]
    on_device = {name for one in device for name in one["block_hashes"]}
    assert len(kept) >= 12
    assert kept <= on_device  # under the engine's own names
    gone = {
        name
        for one in after
        if one["type"] == "BlockRemoved" and one.get("ownership") == "onggi"
        for name in one["block_hashes"]
    }
    assert kept <= gone


DISK = [prompt(40 + n, 1400) for n in range(8)]
PAGE = 131_072


def spoil(disk: Path) -> None:
    """Flip a bit in one page of every seven, wherever the pages lie."""
    for file in disk.rglob("*"):
        if not file.is_file() or file.stat().st_size < 7 * PAGE:
            continue
        with file.open("r+b") as opened:
            for at in range(PAGE // 2, file.stat().st_size, 7 * PAGE):
                opened.seek(at)
                byte = opened.read(1)
                opened.seek(at)
                opened.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_load_that_fails_is_the_policys_to_answer(
    start: Any, make_agent: Any, policy: str
) -> None:
    """recompute: nobody notices. fail: vLLM ends the request with an error, as the user said, and
    no request answers wrong tokens."""
    agent = make_agent(memory="16MiB", disk="256MiB")
    said = {
        "kv_connector": "OnggiConnector",
        "kv_connector_module_path": "onggi.connectors.vllm",
        "kv_role": "kv_both",
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"load": "always"},
    }
    with start(agent.socket, kv_transfer_config=said) as engine:
        right = [engine.generate(one)["tokens"] for one in DISK]
        time.sleep(1.0)
    agent.stop()
    spoil(agent.folder / "disk")
    agent.start()
    with start(agent.socket, kv_transfer_config=said) as engine:
        answers = [engine.generate(one) for one in DISK]
        metrics = engine.metrics()
        later = [engine.generate(one) for one in DISK]
    assert metrics["vllm:onggi_failed_load_blocks"] > 0
    assert metrics["vllm:onggi_faults"] == 0
    reasons = [one["reasons"][0] for one in answers]
    for answer, wanted in zip(answers, right, strict=True):
        if answer["reasons"] == ["length"]:
            assert answer["tokens"] == wanted
    if policy == "recompute":
        assert set(reasons) == {"length"}
    else:
        assert "error" in reasons
        assert set(reasons) <= {"length", "error"}
    for answer, wanted in zip(later, right, strict=True):
        assert answer["reasons"] == ["error"] or answer["tokens"] == wanted
