"""Waits before the API server is asked again."""

import random

from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.kube.backoff import ASKED_MAX_S, MAX_S, SPREAD, Backoff


@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0, 10_000))
def test_waits_are_bounded_and_at_least_what_was_asked_for(
    seed: int, failures: int, asked_s: float
) -> None:
    backoff = Backoff(random.Random(seed))
    for _ in range(failures):
        wait_s = backoff.failed(asked_s=asked_s)
        assert min(asked_s, ASKED_MAX_S) <= wait_s
        assert wait_s <= max(MAX_S, ASKED_MAX_S * (1 + SPREAD))


def test_waits_grow_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(random.Random(1))
    waits = [backoff.failed() for _ in range(8)]
    assert waits[0] <= 0.5
    assert waits[6] >= MAX_S * SPREAD
    backoff.succeeded()
    assert backoff.failed() <= 0.5


def test_a_hundred_callers_that_failed_together_come_back_apart() -> None:
    """No tenth of the time has more than a quarter of them."""
    waits = []
    for seed in range(100):
        backoff = Backoff(random.Random(seed))
        waits.append([backoff.failed() for _ in range(8)][-1])
    low, high = MAX_S * (1 - SPREAD), MAX_S
    tenths = [int((wait - low) / (high - low) * 10) for wait in waits]
    assert max(tenths.count(tenth) for tenth in range(11)) <= 25
