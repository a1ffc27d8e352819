"""Situations of a real vLLM that the other engine tests do not meet, one engine or two for each.

Models of several groups on two ranks, layers on two ranks; prompts of embeddings, adapters, sounds;
the engine's event stream; a disk that went bad under each of vLLM's policies for loads that fail.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from engine_harness import (
    BLOCK,
    ENGINE_TEST_S,
    STEPS,
    WAIT_S,
    AgentProcess,
    EngineProcess,
    connector,
    prompt,
)
from tiny_model import SOUND_TOKEN

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]


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
    more: dict[str, Any] = {"family": family, f"{parallel}_parallel_size": 2}
    name = f"{family}-{parallel}"
    with start("", f"{name}-bare", **more) as bare:
        right = bare.generate(*PROMPTS, max_tokens=20)["tokens"]
    with start(agent.socket, name, kv_transfer_config=connector(), **more) as engine:
        assert engine.generate(*PROMPTS, max_tokens=20)["tokens"] == right
        engine.forget()
        warm = engine.generate(*PROMPTS, max_tokens=20)
        assert warm["tokens"] == right
        assert warm["cached"] == [46 * BLOCK, 12 * BLOCK, 21 * BLOCK]
        metrics = engine.settled()
    assert metrics["vllm:onggi_loaded_tokens_host"] == (46 + 12 + 21) * BLOCK
    assert metrics["vllm:onggi_failed_load_blocks"] == 0
    assert metrics["vllm:onggi_faults"] == 0


def find_their_own(start: Any, agent: AgentProcess, name: str, kinds: Any, **llm: Any) -> None:
    """Prompts that differ in `kinds` alone: none is found by another, each by itself, and the
    answers are those of an engine without Onggi."""
    with start("", f"{name}-bare", **llm) as bare:
        right = [bare.generate(one)["tokens"] for one in kinds]
    assert len({str(tokens) for tokens in right}) == len(kinds)
    with start(agent.socket, name, kv_transfer_config=connector(), **llm) as engine:
        seen = [engine.generate(one) for one in kinds]
        assert [one["cached"] for one in seen] == [[0]] * len(kinds)
        assert [one["tokens"] for one in seen] == right
        engine.forget()
        again = [engine.generate(one) for one in kinds]
        assert [one["cached"] for one in again] == [[9 * BLOCK]] * len(kinds)
        assert [one["tokens"] for one in again] == right
        metrics = engine.settled()
    assert metrics["vllm:onggi_loaded_tokens_host"] == len(kinds) * 9 * BLOCK
    assert metrics["vllm:onggi_faults"] == 0


def test_prompts_of_embeddings_find_their_own_and_no_others(start: Any, make_agent: Any) -> None:
    embeds = [{"embeds": {"seed": seed, "length": 300, "width": 256}} for seed in (1, 2)]
    zeros = {"ids": [0] * 300}  # what vLLM writes for tokens where embeddings are
    find_their_own(start, make_agent(), "embeds", [*embeds, zeros], enable_prompt_embeds=True)


def test_adapters_find_their_own_blocks_and_no_others(
    start: Any, make_agent: Any, model_of: Any
) -> None:
    plain = prompt(5, 300)
    adapted = [{**plain, "adapter": ["a", 1, model_of("adapter")]}]
    adapted.append({**plain, "adapter": ["b", 2, model_of("adapter", seed=2)]})
    more = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
    find_their_own(start, make_agent(), "adapters", [plain, *adapted], **more)


def test_sounds_find_their_own_blocks_and_no_others(start: Any, make_agent: Any) -> None:
    """300 tokens, of which a sound is 16."""
    words = [min(word, SOUND_TOKEN - 3) for word in prompt(6, 285)["ids"]]
    words[2] = SOUND_TOKEN  # in the first block
    heard = [{"ids": words, "sound": seed} for seed in (1, 2, 3)]
    more = {"family": "hearing", "skip_tokenizer_init": False}
    find_their_own(start, make_agent(), "sounds", heard, **more)


LATENT = [prompt(60 + n, 300 + 37 * n) for n in range(4)]


def test_latent_attention_goes_on_from_its_blocks_as_from_the_engines_own(
    start: Any, make_agent: Any
) -> None:
    """Its kernel rounds to bfloat16, so that a prompt computed in other pieces may end in other
    words; those that follow a hit of the engine's own are right."""
    more = {"family": "latent", "dtype": "bfloat16"}
    with start("", "latent-bare", **more) as bare:
        cold = [bare.generate(one)["tokens"] for one in LATENT]
        own = [bare.generate(one) for one in LATENT]
    if own[0]["cached"] == [0]:
        pytest.skip("without AMX vLLM computes such prompts whole, and has no prefix cache itself")
    with start(make_agent().socket, "latent", kv_transfer_config=connector(), **more) as engine:
        assert [engine.generate(one)["tokens"] for one in LATENT] == cold
        engine.forget()
        again = [engine.generate(one) for one in LATENT]
        assert [(one["cached"], one["tokens"]) for one in again] == [
            (one["cached"], one["tokens"]) for one in own
        ]
        metrics = engine.settled()
    assert metrics["vllm:onggi_loaded_tokens_host"] == sum(one["cached"][0] for one in own)
    assert metrics["vllm:onggi_faults"] == 0


def test_an_engine_that_computes_prompts_whole_is_left_alone(
    start: Any, make_agent: Any, folder: Path
) -> None:
    """vLLM's reference for latent attention on a CPU answers wrong tokens after any hit."""
    more = {"family": "latent", "attention_backend": "CPU_MLA", "block_size": 16}
    with start("", "whole-bare", **more) as bare:
        right = [bare.generate(one)["tokens"] for one in LATENT]
    with start(make_agent().socket, "whole", kv_transfer_config=connector(), **more) as engine:
        for _ in range(2):
            said = [engine.generate(one) for one in LATENT]
            assert [one["tokens"] for one in said] == right
            assert [one["cached"] for one in said] == [[0]] * len(LATENT)
    assert "computes prompts whole" in (folder / "whole.log").read_text()


class Listener:
    """What an engine publishes."""

    def __init__(self, engine: EngineProcess, endpoint: str) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._until_s = time.monotonic() + WAIT_S
        seed = 1000
        while not self._more():  # a subscriber hears nothing until it has been let in
            engine.generate(prompt(seed, 2 * BLOCK))
            seed += 1

    def until(self, enough: Any) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        while not enough(heard):
            assert time.monotonic() < self._until_s, heard
            heard += self._more()
        return heard

    def _more(self) -> list[dict[str, Any]]:
        self._engine.generate(STEPS)  # what is told is told with a step
        told: list[dict[str, Any]]
        told = self._engine.ask(do="events", endpoint=self._endpoint)["events"]
        return told


def named(
    events: list[dict[str, Any]], kind: str, *, ours: bool = True, medium: str = ""
) -> set[Any]:
    """Blocks that events of a kind name, Onggi's or the engine's own; of a medium, or of all."""
    return {
        name
        for one in events
        if one["type"] == kind
        and (one.get("ownership") == "onggi") == ours
        and one["medium"] in (medium or one["medium"])
        for name in one["block_hashes"]
    }


def test_the_engines_stream_tells_what_the_agent_keeps(
    start: Any, make_agent: Any, tmp_path: Path
) -> None:
    agent = make_agent()
    endpoint = f"ipc://{tmp_path}/events"
    listened = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
    more = {"kv_events_config": listened, "kv_transfer_config": connector()}

    def all_kept(told: list[dict[str, Any]]) -> bool:
        """What the device holds is with the agent, under the engine's own names."""
        on_device = named(told, "BlockStored", ours=False)
        return len(on_device) >= 12 and on_device <= named(told, "BlockStored", ours=True)

    with start(agent.socket, "events", **more) as engine:
        listener = Listener(engine, endpoint)
        engine.forget()
        engine.generate(PROMPTS[1])
        heard = listener.until(all_kept)
        kept = named(heard, "BlockStored", ours=True)
        engine.forget(connector=True)
        after = listener.until(lambda told: kept <= named(told, "BlockRemoved", ours=True))
    ours = [one for one in heard if one.get("ownership") == "onggi"]
    assert {(one["type"], one["medium"], one["locality"]) for one in ours} == {
        ("BlockStored", "CPU", "LOCAL")
    }
    assert not named(after, "BlockStored", ours=True)


DISK = [prompt(40 + n, 1400) for n in range(8)]
PAGE = 131_072


def test_the_engines_stream_tells_of_the_way_to_disk_and_back(
    start: Any, make_agent: Any, tmp_path: Path
) -> None:
    """A host tier of three of these prompts."""
    agent = make_agent(memory="16MiB", disk="256MiB")
    endpoint = f"ipc://{tmp_path}/events"
    listened = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
    more = {"kv_events_config": listened, "kv_transfer_config": connector()}

    def moved(told: list[dict[str, Any]], at: str, other: str) -> bool:
        return first <= named(told, "BlockStored", medium=at) and first <= named(
            told, "BlockRemoved", medium=other
        )

    with start(agent.socket, "moves", **more) as engine:
        listener = Listener(engine, endpoint)
        right = engine.generate(DISK[0])["tokens"]
        heard = listener.until(lambda told: len(named(told, "BlockStored", medium="CPU")) >= 43)
        first = named(heard, "BlockStored", medium="CPU") & named(heard, "BlockStored", ours=False)
        for one in DISK[1:5]:
            agent.settle()
            engine.generate(one)
        listener.until(lambda told: moved(told, "STORAGE", "CPU"))
        engine.forget()
        again = engine.generate(DISK[0])
        assert (again["tokens"], again["cached"]) == (right, [43 * BLOCK])
        listener.until(lambda told: moved(told, "CPU", "STORAGE"))


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_load_that_fails_is_the_policys_to_answer(
    start: Any, make_agent: Any, policy: str
) -> None:
    """recompute: nobody notices. fail: vLLM ends the request with an error, as the user said, and
    no request answers wrong tokens."""
    agent = make_agent(memory="16MiB", disk="256MiB")
    said = connector(policy)
    right = []
    with start(agent.socket, f"{policy}-stores", kv_transfer_config=said) as engine:
        for one in DISK:
            right.append(engine.generate(one)["tokens"])
            engine.forget()
            agent.settle()
    agent.stop()
    agent.spoil(PAGE)
    agent.start()
    with start(agent.socket, f"{policy}-loads", kv_transfer_config=said) as engine:
        answers = [engine.generate(one) for one in DISK]
        metrics = engine.settled()
        later = [engine.generate(one) for one in DISK]
    assert metrics["vllm:onggi_failed_load_blocks"] > 0
    assert metrics["vllm:onggi_faults"] == 0
    reasons = [one["reasons"][0] for one in answers]
    for answer, wanted in zip(answers, right, strict=True):
        if answer["reasons"] == ["length"]:
            assert answer["tokens"] == wanted
    if policy == "recompute":
        assert set(reasons) == {"length"}
        assert metrics["vllm:onggi_loaded_tokens_disk"] > 0
    else:
        assert "error" in reasons
        assert set(reasons) <= {"length", "error"}
    for answer, wanted in zip(later, right, strict=True):
        assert answer["reasons"] == ["error"] or answer["tokens"] == wanted
