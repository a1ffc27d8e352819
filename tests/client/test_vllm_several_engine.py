"""Onggi as one of several connectors of a real engine (vLLM's MultiConnector)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, EngineProcess, connector, prompt
from offloading_on_cpu import install

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PROMPTS = [prompt(1, 700), prompt(2, 300)]
CACHED = [21 * BLOCK, 9 * BLOCK]
SAVED = 22 + 9
"""Blocks of the prompts with what is generated."""
FAILS = 500
"""Tokens of the prompts that the neighbour promises and fails to load."""


def several(*children: dict[str, Any]) -> dict[str, Any]:
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"connectors": list(children)},
    }


def neighbour(kind: str, **extra: Any) -> dict[str, Any]:
    return {
        "kv_connector": kind,
        "kv_connector_module_path": "neighbour",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }


def first_and_again(engine: EngineProcess) -> tuple[Any, dict[str, Any], dict[str, float]]:
    engine.generate(prompt(9, 40))  # a scheduler that no handshake reached hears with it of ranks
    first = engine.generate(*PROMPTS)["tokens"]
    engine.forget()
    again = engine.generate(*PROMPTS)
    return first, again, engine.settled()


@pytest.mark.parametrize("order", ["ours-first", "ours-last"])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_neighbour_with_a_handshake_of_its_own(
    start: Any, agent_process: Any, order: str, pipeline: int
) -> None:
    kind = "Shaking" if pipeline == 1 else "Neighbour"
    children = [connector(), neighbour(kind)]
    if order == "ours-last":
        children.reverse()
    more = {"pipeline_parallel_size": pipeline}
    agent = agent_process()
    more["kv_transfer_config"] = several(*children)
    with start(agent.socket, f"{order}-{pipeline}", **more) as engine:
        first, again, metrics = first_and_again(engine)
    assert again["tokens"] == first
    assert again["cached"] == CACHED
    assert metrics["vllm:onggi_loaded_tokens_host"] == sum(CACHED)
    assert metrics["vllm:onggi_faults"] == 0


def test_what_a_neighbour_fails_to_load_is_not_kept(start: Any, agent_process: Any) -> None:
    """The step computes on what is not there, and is computed again; the next engine finds only
    what is right."""
    agent, one = agent_process(), prompt(5, FAILS)
    with start("", "fails-bare") as bare:
        right = bare.generate(one)["tokens"]
    children = [neighbour("Neighbour", fails_tokens=FAILS), connector()]
    with start(agent.socket, "fails", kv_transfer_config=several(*children)) as engine:
        assert engine.generate(one)["tokens"] == right
        metrics = engine.settled()
    assert metrics["vllm:onggi_saved_blocks"] == FAILS // BLOCK
    with start(agent.socket, "finds", kv_transfer_config=connector()) as engine:
        said = engine.generate(one)
    assert (said["tokens"], said["cached"]) == (right, [FAILS // BLOCK * BLOCK])


def offloading(_: Path) -> dict[str, Any]:
    """vLLM's own, with host memory for all of the prompts."""
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 1 << 25}
    return {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra}


def example(folder: Path) -> dict[str, Any]:
    """vLLM's example, which loads in the step that needs it."""
    extra = {"shared_storage_path": str(folder / "example")}
    return {"kv_connector": "ExampleConnector", "kv_connector_extra_config": extra}


@pytest.mark.parametrize("theirs", [offloading, example], ids=lambda theirs: theirs.__name__)
def test_beside_vllms_own(
    start: Any, agent_process: Any, tmp_path: Path, folder: Path, theirs: Any
) -> None:
    """What the first of them has is loaded by it and what it has not by the other; both keep all
    that is computed."""
    install(tmp_path / "cpu")
    path = f"{folder / 'client'}{os.pathsep}{tmp_path / 'cpu'}"
    child = {**theirs(tmp_path), "kv_role": "kv_both"}
    more = {
        "env": {"PYTHONPATH": path},
        "kv_transfer_config": several(child, connector()),
        "disable_hybrid_kv_cache_manager": theirs is example,
    }
    agent, name = agent_process(), theirs.__name__
    with start("", f"{name}-bare") as bare:
        right = [bare.generate(one)["tokens"] for one in PROMPTS]
    with start(agent.socket, f"{name}-both", **more) as engine:
        assert [engine.generate(one)["tokens"] for one in PROMPTS] == right
        engine.forget()
        again = [engine.generate(one) for one in PROMPTS]
        metrics = engine.settled()
    assert [one["tokens"] for one in again] == right
    assert [one["cached"][0] for one in again] == CACHED
    assert metrics["vllm:onggi_loaded_tokens_host"] == 0
    assert metrics["vllm:onggi_saved_blocks"] == SAVED
    assert metrics["vllm:onggi_faults"] == 0
    more["kv_transfer_config"] = connector()
    with start(agent.socket, f"{name}-ours", **more) as engine:
        again = [engine.generate(one) for one in PROMPTS]
    assert [one["tokens"] for one in again] == right
    assert [one["cached"][0] for one in again] == CACHED
