"""A real vLLM with its own offloading and a real agent behind its host memory.

What docs/vllm.md prints is what runs here. The host memory is small, so that what an engine finds
again comes from the agent, and a new engine finds what the one before it stored.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import (
    BLOCK,
    ENGINE_TEST_S,
    HERE,
    MANY,
    STEPS,
    WAIT_S,
    AgentProcess,
    EngineProcess,
    prompt,
)
from offloading_on_cpu import install

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

ROW = 131_072
"""4 layers, 2 heads of 64, keys and values, float32, 32 tokens: a multiple of a page already."""
CHUNKS = 64
"""In vLLM's host memory: for a prompt of the longest length and little more."""
DOCS = HERE.parents[1] / "docs" / "vllm.md"


def printed() -> dict[str, Any]:
    """The configuration of the page."""
    (found,) = re.findall(
        r"'(\{\"kv_connector\": \"OnggiOffloadingConnector\".*?\})'", DOCS.read_text(), re.S
    )
    config: dict[str, Any] = json.loads(found)
    return config


def config(**tier: Any) -> dict[str, Any]:
    """The same with little host memory, and more said of the tier."""
    wanted = printed()
    extra = wanted["kv_connector_extra_config"]
    extra["cpu_bytes_to_use"] = CHUNKS * ROW
    patient = {"deadline_s": 30, "disk_wait_s": 30, **tier}  # as a busy machine needs
    extra["secondary_tiers"] = [{**one, **patient} for one in extra["secondary_tiers"]]
    return wanted


LONG = prompt(1, 1500)
EXACT = prompt(2, 1536)
SALTED = prompt(3, 700, salt="a")
SHARED = [{"ids": prompt(4, 640)["ids"] + prompt(5 + n, 90)["ids"]} for n in range(3)]
CROWD = [prompt(20 + n, 500) for n in range(4)]
ALL = [LONG, EXACT, SALTED, *SHARED, *CROWD]


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "run", memory="32MiB", disk="256MiB") as agent:
        yield agent


@pytest.fixture(scope="module")
def start(start: Any, folder: Path) -> Any:
    """With a stand-in for the copies that vLLM has for devices only."""
    install(folder / "cpu")
    path = f"{folder / 'client'}{os.pathsep}{folder / 'cpu'}"

    def with_copies(socket: str, name: str, family: str = "grouped", **llm: Any) -> EngineProcess:
        llm["env"] = {"PYTHONPATH": path, **llm.get("env", {})}
        llm.setdefault("num_gpu_blocks_override", 200)
        engine: EngineProcess = start(socket, name, family, **llm)
        return engine

    return with_copies


def each(engine: EngineProcess, prompts: list[dict[str, Any]]) -> list[list[int]]:
    return [engine.generate(one)["tokens"][0] for one in prompts]


def of_tier(metrics: dict[str, float], name: str) -> float:
    return metrics.get(f'vllm:kv_offload_tiering_{name}{{"tier": "1:onggi"}}', 0)


def settle(engine: EngineProcess) -> dict[str, float]:
    """Its metrics, once all that it computed has been handed on."""
    until_s = time.monotonic() + WAIT_S
    engine.generate(STEPS)  # in whose steps the last stores begin
    while True:
        engine.generate(STEPS)
        metrics = engine.metrics()
        if of_tier(metrics, "active_cascade_jobs") == 0:
            return metrics
        assert time.monotonic() < until_s, metrics


def each_settled(engine: EngineProcess, prompts: list[dict[str, Any]]) -> list[list[int]]:
    """Its host memory has room for one of them at a time: what finds none is not handed on."""
    tokens = []
    for one in prompts:
        tokens += each(engine, [one])
        settle(engine)
    return tokens


@pytest.fixture(scope="module")
def right(start: Any) -> dict[str, Any]:
    with start("", "bare") as engine:
        return {"each": each(engine, ALL), "crowd": engine.generate(*CROWD, max_tokens=20)}


@pytest.fixture(scope="module")
def cold(start: Any, agent: AgentProcess) -> dict[str, Any]:
    with start(agent.socket, "cold", kv_transfer_config=config()) as engine:
        return {"each": each_settled(engine, ALL), "metrics": settle(engine)}


def test_cold_everything_is_computed_and_handed_on(
    right: dict[str, Any], cold: dict[str, Any]
) -> None:
    assert cold["each"] == right["each"]
    metrics = cold["metrics"]
    shared = 22 + 2 + 2  # the first 20 are the same
    assert of_tier(metrics, "write_bytes") == (46 + 48 + 21 + shared + 4 * 15) * ROW
    assert of_tier(metrics, "cascade_job_failures") == 0
    assert metrics.get("vllm:onggi_tier_faults", 0) == 0


@pytest.fixture(scope="module")
def warm(start: Any, agent: AgentProcess, cold: dict[str, Any]) -> dict[str, Any]:
    assert cold
    with start(agent.socket, "warm", kv_transfer_config=config()) as engine:
        seen: dict[str, Any] = {"long": engine.generate(LONG), "after_long": engine.metrics()}
        seen["exact"] = engine.generate(EXACT)
        seen["other_salt"] = engine.generate({**SALTED, "salt": "b"})
        seen["salt"] = engine.generate(SALTED)
        seen["each"] = each(engine, ALL)
        seen["aborted"] = engine.ask(do="abort", prompts=CROWD[1:4], steps=2)
        engine.send(do="generate", prompts=CROWD, max_tokens=20)
        time.sleep(0.2)
        agent.kill()
        seen["while_gone"] = engine.expect()
        seen["gone"] = each(engine, ALL[:4])
        agent.start()
        seen["back"] = each_settled(engine, ALL[:4])
        engine.forget(connector=True)
        seen["forgotten"] = engine.generate(CROWD[0])
        seen["again"] = each(engine, ALL)
        seen["metrics"] = settle(engine)
    return seen


def test_a_new_engine_finds_what_the_one_before_it_stored(
    right: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["long"]["tokens"][0] == right["each"][0]
    assert warm["long"]["cached"] == [46 * BLOCK]
    metrics = warm["after_long"]
    assert of_tier(metrics, "read_bytes") == 46 * ROW
    assert metrics['vllm:prompt_tokens_cached_by_source{"source": "host"}'] == 46 * BLOCK


def test_a_prompt_of_whole_chunks_is_found_whole(
    right: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["exact"]["tokens"][0] == right["each"][1]
    assert warm["exact"]["cached"] == [48 * BLOCK]  # vLLM computes the last token all the same


def test_salts_do_not_share(right: dict[str, Any], warm: dict[str, Any]) -> None:
    assert warm["other_salt"]["cached"] == [0]
    assert warm["salt"]["cached"] == [21 * BLOCK]
    assert warm["salt"]["tokens"][0] == right["each"][2]


def test_tokens_are_equal_whatever_becomes_of_the_agent(
    right: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["aborted"] == {"unfinished": 0}
    for when in ("each", "gone", "back", "again"):
        assert warm[when] == right["each"][: len(warm[when])], when
    assert warm["while_gone"]["tokens"] == right["crowd"]["tokens"]
    assert warm["metrics"].get("vllm:onggi_tier_faults", 0) == 0


def test_after_a_reset_by_hand_nothing_of_before_is_found(warm: dict[str, Any]) -> None:
    assert warm["forgotten"]["cached"] == [0]


HYBRID = [LONG, EXACT, *SHARED]


def test_several_groups_and_larger_chunks(start: Any, tmp_path: Path) -> None:
    """A model with windows, two blocks a chunk."""
    wanted = config()
    wanted["kv_connector_extra_config"] |= {"blocks_per_chunk": 2, "cpu_bytes_to_use": 64 << 20}
    (tmp_path / "run").mkdir()
    with AgentProcess(tmp_path / "run", memory="64MiB", disk="256MiB") as agent:
        more = {"family": "hybrid", "num_gpu_blocks_override": MANY}
        with start("", "hybrid-bare", **more) as engine:
            wanted_tokens = each(engine, HYBRID)
        with start(agent.socket, "hybrid-cold", kv_transfer_config=wanted, **more) as engine:
            assert each_settled(engine, HYBRID) == wanted_tokens
            assert of_tier(settle(engine), "cascade_job_failures") == 0
        with start(agent.socket, "hybrid-warm", kv_transfer_config=wanted, **more) as engine:
            found = engine.generate(LONG)
            assert found["tokens"][0] == wanted_tokens[0]
            assert found["cached"][0] >= 22 * 2 * BLOCK
            assert each(engine, HYBRID) == wanted_tokens
            metrics = engine.metrics()
            assert of_tier(metrics, "read_bytes") > 0
            assert metrics.get("vllm:onggi_tier_faults", 0) == 0


def test_two_ranks_share_a_row(start: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    more: dict[str, Any] = {"tensor_parallel_size": 2}
    with AgentProcess(tmp_path / "run", memory="64MiB") as agent:
        with start(agent.socket, "ranks-cold", kv_transfer_config=config(), **more) as engine:
            wanted = engine.generate(LONG, max_tokens=40)["tokens"]
            assert of_tier(settle(engine), "write_bytes") >= 46 * ROW
        with start(agent.socket, "ranks-warm", kv_transfer_config=config(), **more) as engine:
            found = engine.generate(LONG, max_tokens=40)
            assert found["tokens"] == wanted
            assert found["cached"] == [46 * BLOCK]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_connector": "OffloadingConnector"}, "set kv_connector to OnggiOffloadingConnector"),
        ({"tier": {"tennant": "x"}}, "did you mean tenant?"),
    ],
)
def test_it_stands_back_and_says_why(
    start: Any, folder: Path, agent: AgentProcess, change: dict[str, Any], said: str
) -> None:
    wanted = config(**change.pop("tier", {}))
    if "kv_connector" in change:
        wanted["kv_connector"] = change["kv_connector"]
        del wanted["kv_connector_module_path"]
        entry = {"type": "OnggiTier", "module_path": "onggi.connectors.vllm.secondary"}
        wanted["kv_connector_extra_config"]["secondary_tiers"] = [entry]
    name = "back-" + said.split()[0]
    with start(agent.socket, name, kv_transfer_config=wanted) as engine:
        assert engine.generate(CROWD[0])["cached"] == [0]
        assert len(engine.generate(*CROWD)["tokens"]) == len(CROWD)
    assert said in (folder / f"{name}.log").read_text(errors="replace")
