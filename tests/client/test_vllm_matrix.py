"""Real engines of several kinds of models: with Onggi every token is as without it.

For each kind three engines one after the other: one without Onggi, one that stores, one that finds
what the other stored and whose agent dies on the way. All get the same sets of prompts, drawn
from a seed, which share beginnings, carry salts, and are followed by requests that are aborted. Few
blocks on the device, so that an engine loads again what it has had itself.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import HERE, AgentProcess, EngineProcess

from onggi_sidecar.install_client import install_client

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SETS = 24
"""For each kind, each of them given to three engines: some two hundred in all."""
BLOCKS = 220
"""On the device: for the longest set of prompts and little more."""


class Case:
    """A model and how to run it. blocks: of the device. tokens: to generate for each prompt."""

    def __init__(self, family: str, blocks: int = BLOCKS, *, tokens: int = 6, **llm: Any) -> None:
        self.family = family
        self.tokens = tokens
        # One thread: two that wait for each other are slower where another test runs beside them.
        env = {"OMP_NUM_THREADS": "1", **llm.pop("env", {})}
        self.llm = {"num_gpu_blocks_override": blocks, "env": env, **llm}


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
CASES = {
    "plain": Case("plain"),
    "grouped": Case("grouped"),
    "window": Case("window"),
    "hybrid": Case("hybrid", 600),
    "hybrid-chunked": Case("hybrid", 300, max_num_batched_tokens=128),
    "hybrid-async": Case("hybrid", 600, async_scheduling=True),
    "hybrid-drafts": Case("hybrid", 600, tokens=24, speculative_config=NGRAM),
    "grouped-drafts": Case("grouped", tokens=24, speculative_config=NGRAM),
    "hybrid-preempted": Case("hybrid", 110, tokens=60, max_num_batched_tokens=128),
}


def prompt_sets(seed: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(seed)
    stems = [[rng.randrange(512) for _ in range(1000)] for _ in range(4)]

    def prompt() -> dict[str, Any]:
        stem = rng.choice(stems)[: rng.randrange(20, 1000)]
        tail = [rng.randrange(512) for _ in range(rng.randrange(1, 80))]
        salt = rng.choice([None, None, None, "a", "b"])
        return {"ids": stem + tail, **({"salt": salt} if salt else {})}

    return [[prompt() for _ in range(rng.randrange(1, 5))] for _ in range(SETS)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    install_client(folder)
    return folder


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    (tmp_path / "run").mkdir()
    with AgentProcess(tmp_path / "run", memory="128MiB", disk="256MiB") as agent:
        yield agent


def answers(
    engine: EngineProcess,
    sets: list[list[dict[str, Any]]],
    tokens: int,
    seed: int,
    each: Any = None,
) -> list[Any]:
    rng, said = random.Random(seed), []
    for number, prompts in enumerate(sets):
        if each is not None:
            each(number)
        said.append(engine.generate(*prompts, max_tokens=tokens)["tokens"])
        if rng.random() < 0.3:
            gone = engine.ask(do="abort", prompts=prompts, steps=rng.randrange(4))
            assert gone == {"unfinished": 0}
    return said


@pytest.mark.parametrize("name", CASES)
def test_every_token_is_as_without_onggi(
    python: str, client: Path, agent: AgentProcess, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    model, log = str(tmp_path / "model"), tmp_path / "engine.log"
    command = [python, str(HERE / "tiny_model.py"), model, "1", case.family]
    subprocess.run(command, check=True, capture_output=True)
    sets = prompt_sets(7)

    def engine(socket: str) -> EngineProcess:
        return EngineProcess(python, client, socket, log, model=model, **case.llm)

    with engine("") as bare:
        right = answers(bare, sets, case.tokens, 1)
    with engine(agent.socket) as first:
        assert answers(first, sets, case.tokens, 2) == right
        stored = first.metrics()

    def each(number: int) -> None:
        if number == SETS // 2:
            agent.kill()
        if number == SETS // 2 + 4:
            agent.start()
            time.sleep(1.0)

    with engine(agent.socket) as second:
        assert answers(second, sets, case.tokens, 3, each) == right
        found = second.metrics()
    for metrics in (stored, found):
        assert metrics["vllm:onggi_faults"] == 0
    assert stored["vllm:onggi_saved_blocks"] > 0
    loaded = [
        sum(metrics[f"vllm:onggi_loaded_tokens_{tier}"] for tier in ("host", "disk"))
        for metrics in (stored, found)
    ]
    print(
        f"{name}: {sum(map(len, sets))} prompts, three times; loaded {loaded} tokens, "
        f"preempted {stored.get('vllm:num_preemptions', 0):.0f}"
    )
    assert loaded[1] > 0
