"""Turns and quantiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.timing import interleaved, median, quantile
from hypothesis import given
from hypothesis import strategies as st


def clock_of(ticks: list[float]) -> Callable[[], float]:
    """Each reading is the next of `ticks`."""
    return iter(ticks).__next__


def test_contestants_take_turns_and_the_order_turns_too() -> None:
    said: list[str] = []
    contestants = [lambda n, who=who: said.append(f"{who}{n}") for who in "abc"]

    interleaved(contestants, rounds=3, warm_up=0)

    assert said == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2"]


def test_each_round_is_booked_to_the_one_that_ran_it_and_warm_up_to_nobody() -> None:
    ticks = [0.0, 9.0, 9.0, 18.0, 18.0, 20.0, 20.0, 21.0]  # round 1 runs b (2 s), then a (1 s)

    times = interleaved([lambda n: None] * 2, rounds=1, warm_up=1, clock=clock_of(ticks))

    assert times == [[1.0], [2.0]]


def test_quantiles_are_samples() -> None:
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]

    assert median(samples) == 3.0
    assert quantile(samples, 0.99) == 5.0
    assert quantile(samples, 0.2) == 1.0
    assert median([1.0, 2.0]) == 1.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_at_least_the_share_asked_for_is_not_above_a_quantile(
    samples: list[float], share: float
) -> None:
    bound = quantile(samples, share)

    assert bound in samples
    assert sum(s <= bound for s in samples) >= share * len(samples)
    assert sum(s < bound for s in samples) < share * len(samples)


def test_no_samples_have_no_median() -> None:
    with pytest.raises(ValueError, match="samples is empty"):
        median([])
    with pytest.raises(ValueError, match="share is 0"):
        quantile([1.0], 0.0)
