"""The checkers can fail: each finds a bug that was planted for it, and says how to see it again."""

from __future__ import annotations

import pytest
from tests.sim.checkers.all import CHECKERS
from tests.sim.planted import PLANTED
from tests.sim.runner import ENGINE_FAULT, Outcome, run, shrink
from tests.sim.saboteurs import WrongOffset

SEEDS = 8
STEPS = 3000


def first_failure(engine_of, config: str) -> Outcome | None:
    for seed in range(SEEDS):
        ended = run(seed, config, STEPS, engine_of)
        if ended.checker:
            return ended
    return None


@pytest.mark.parametrize(
    ("engine_of", "config", "checker"), PLANTED, ids=[bug.__name__ for bug, _, _ in PLANTED]
)
def test_a_planted_bug_is_found_by_the_checker_that_it_breaks(engine_of, config, checker) -> None:
    ended = first_failure(engine_of, config)
    assert ended is not None, f"nobody saw it in {SEEDS} seeds of {STEPS} steps"
    assert ended.checker == checker, ended.report()


def test_every_checker_has_a_bug_that_it_finds() -> None:
    assert {checker.name for checker in CHECKERS} | {ENGINE_FAULT} == {name for *_, name in PLANTED}


def test_a_failure_says_how_to_see_it_again_and_shrinks() -> None:
    ended = first_failure(WrongOffset, "calm")
    assert ended is not None
    short = shrink(ended, WrongOffset)
    assert short.steps <= ended.steps
    assert f"python -m tests.sim --seed {ended.seed} --steps {short.steps}" in short.report()
    again = run(short.seed, short.config, short.steps, WrongOffset)
    asked_for = min(again.steps, again.asked_steps)  # what rest adds is nobody's to ask for
    assert (again.checker, asked_for) == (short.checker, short.steps)
    before = run(short.seed, short.config, short.steps - 1, WrongOffset)
    assert before.checker != short.checker or before.steps >= short.steps
