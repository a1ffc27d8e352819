"""An agent dies under load: requests do not notice, and its next life is found."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rig.engine import BLOCK_TOKENS, Answer, Engine, prompt, reusable_tokens
from rig.figures import agent_figures
from rig.kubectl import Kubectl, until
from rig.reach import kill_container, restarts
from waits import ATTACHED_S, CONTAINER_BACK_S, LOADED_S

AGENT = "onggi-agent"
CLIENTS = 4
PROMPTS = 6
TOKENS = 8 * BLOCK_TOKENS
EACH_AFTER = 2
"""Answers to each prompt after the kill: more than those that were on their way then."""


def test_no_request_fails_and_hits_come_back(kubectl: Kubectl, engine: Engine) -> None:
    before = engine.pod()
    answers = _under_load(engine, lambda: kill_container(kubectl, engine.pod(), AGENT))
    assert len(answers) == PROMPTS
    for seed, of_one in answers.items():
        assert len(of_one) > EACH_AFTER
        assert len({answer.tokens for answer in of_one}) == 1, f"prompt {seed} was answered anew"

    until(
        "the agent's next life",
        lambda: restarts(engine.pod(), AGENT) > restarts(before, AGENT),
        CONTAINER_BACK_S,
    )

    def figures() -> dict[str, float]:
        return agent_figures(kubectl, engine.pod())

    _until_up(figures)
    until("the client's return", lambda: _asked(engine, figures), ATTACHED_S)

    asked = prompt(seed=200, tokens=TOKENS)
    cold = engine.ask(asked)
    until("a hit after the restart", lambda: _hit(engine, asked, cold), ATTACHED_S)
    assert restarts(engine.pod(), "vllm") == restarts(before, "vllm")


def _under_load(engine: Engine, kill: Callable[[], None]) -> dict[int, list[Answer]]:
    """Answers by prompt: at least one of each before the kill, and EACH_AFTER of each after it.

    Any request that fails raises here.
    """
    stop = threading.Event()
    seeds = range(100, 100 + PROMPTS)
    answers: dict[int, list[Answer]] = {seed: [] for seed in seeds}

    def client(number: int) -> None:
        for seed in itertools.cycle([*seeds[number:], *seeds[:number]]):
            if stop.is_set():
                return
            answers[seed].append(engine.ask(prompt(seed, TOKENS), length=4))

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client, number) for number in range(CLIENTS)]

        def answered(least: dict[int, int]) -> bool:
            for each in clients:
                if each.done():
                    each.result()  # a failed request ends its client
            return all(len(answers[seed]) >= least[seed] for seed in seeds)

        try:
            until("an answer to each", lambda: answered(dict.fromkeys(seeds, 1)), LOADED_S)
            kill()
            enough = {seed: len(answers[seed]) + EACH_AFTER for seed in seeds}
            until("answers after the kill", lambda: answered(enough), LOADED_S)
        finally:
            stop.set()
        for each in clients:
            each.result()
    return answers


def _until_up(figures: Callable[[], dict[str, float]]) -> None:
    def up() -> bool:
        try:
            return bool(figures())
        except OSError:
            return False

    until("the agent's figures", up, CONTAINER_BACK_S)


def _asked(engine: Engine, figures: Callable[[], dict[str, float]]) -> bool:
    """Whether the engine's client talks to this life of the agent; asks something to make it."""
    engine.ask(prompt(seed=int(time.monotonic() * 1000), tokens=2 * BLOCK_TOKENS), length=1)
    return bool(figures()["onggi_stored_blocks_total"] > 0)


def _hit(engine: Engine, asked: list[int], cold: Answer) -> bool:
    engine.forget()
    again = engine.ask(asked)
    assert again.tokens == cold.tokens
    return again.cached_tokens == reusable_tokens(TOKENS)
