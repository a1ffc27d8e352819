"""Real engines of several kinds of models: with Onggi every token is as without it.

For each kind three engines one after the other: one without Onggi, one that stores, one that finds
what the other stored and whose agent dies on the way. All get the same sets of prompts, drawn
from a seed, which share beginnings, carry salts, and are followed by requests that are aborted. Few
blocks on the device, so that an engine loads again what it has had itself.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, AgentProcess, EngineProcess, connector

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

SETS = int(os.environ.get("ONGGI_SETS", "24"))
"""Of prompts for each kind, each given to three engines."""
AGENT_DIES, AGENT_IS_BACK, EVERY = 12, 16, 24
"""Of the sets that the second engine with Onggi is given: behind which its agent is killed, and
starts again."""
SEED = int(os.environ.get("ONGGI_SEED", "7"))
BLOCKS = 220
"""On the device: for the longest set of prompts and little more."""


class Case:
    """A model and how to run it. blocks: of the device. tokens: to generate for each prompt."""

    def __init__(self, family: str, blocks: int = BLOCKS, *, tokens: int = 6, **llm: Any) -> None:
        self.family = family
        self.tokens = tokens
        self.llm = {"num_gpu_blocks_override": blocks, **llm}


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
CASES = {
    "plain": Case("plain"),
    "grouped": Case("grouped"),
    "window": Case("window"),
    "hybrid": Case("hybrid", 600),
    "grouped-chunked": Case("grouped", max_num_batched_tokens=128),
    "hybrid-chunked": Case("hybrid", 300, max_num_batched_tokens=128),
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


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    (tmp_path / "run").mkdir()
    with AgentProcess(tmp_path / "run", memory="128MiB", disk="1GiB") as agent:
        yield agent


def answers(
    engine: EngineProcess,
    sets: list[list[dict[str, Any]]],
    tokens: int,
    seed: int,
    each: Any = None,
) -> list[dict[str, Any]]:
    """What it says to each set. each: called after it, with the set's number."""
    rng, said = random.Random(seed), []
    for number, prompts in enumerate(sets):
        said.append(engine.generate(*prompts, max_tokens=tokens))
        if rng.random() < 0.3:
            gone = engine.ask(do="abort", prompts=prompts, steps=rng.randrange(4))
            assert gone == {"unfinished": 0}
        if each is not None:
            each(number)
    return said


def tokens_of(said: list[dict[str, Any]]) -> list[Any]:
    return [one["tokens"] for one in said]


@pytest.mark.parametrize("name", CASES)
def test_every_token_is_as_without_onggi(start: Any, agent: AgentProcess, name: str) -> None:
    """The first engine by the plugin, which loads what pays; the second loads all there is."""
    case, seed = CASES[name], SEED + list(CASES).index(name)
    sets = prompt_sets(seed)

    with start("", f"{name}-bare", case.family, **case.llm) as bare:
        right = tokens_of(answers(bare, sets, case.tokens, 1))

    with start(agent.socket, f"{name}-first", case.family, **case.llm) as first:
        said = answers(first, sets, case.tokens, 2, lambda _: agent.settle())
        assert tokens_of(said) == right
        stored = first.settled()
    agent.settle()

    def each(number: int) -> None:
        if number % EVERY == AGENT_DIES:
            agent.kill()
        if number % EVERY == AGENT_IS_BACK:
            agent.start()

    more = {**case.llm, "kv_transfer_config": connector()}
    with start(agent.socket, f"{name}-second", case.family, **more) as second:
        said = answers(second, sets, case.tokens, 3, each)
        assert tokens_of(said) == right
        found = second.settled()
    for metrics in (stored, found):
        assert metrics["vllm:onggi_faults"] == 0
    assert stored["vllm:onggi_saved_blocks"] > 0
    loaded = [
        sum(metrics[f"vllm:onggi_loaded_tokens_{tier}"] for tier in ("host", "disk"))
        for metrics in (stored, found)
    ]
    before = [
        (cached, (len(prompt["ids"]) - 1) // BLOCK * BLOCK)
        for prompts, one in zip(sets[: AGENT_DIES + 1], said, strict=False)
        for prompt, cached in zip(prompts, one["cached"], strict=True)
    ]
    print(
        f"{name}: {sum(map(len, sets))} prompts, three times; loaded {loaded} tokens, "
        f"preempted {stored.get('vllm:num_preemptions', 0):.0f}"
    )
    assert [cached for cached, _ in before] == [whole for _, whole in before]
    assert loaded[1] > 0
