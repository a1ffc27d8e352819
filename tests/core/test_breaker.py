"""The breaker: what opens it, what closes it, and that it never keeps a tier shut for ever."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.breaker import (
    BAD_READS,
    CLOSING_READ_S,
    HUNG_S,
    MOVES,
    PROBES,
    REST_MAX_S,
    REST_MIN_S,
    SLOW_READ_S,
    STEADY_S,
    WINDOW_READS,
    Breaker,
    BreakerEvent,
    BreakerState,
)
from onggi_core.engine.events import IoOutcome
from onggi_core.errors import IllegalMove

DONE, FAULT = IoOutcome.DONE, IoOutcome.FAULT
SLOW_S = SLOW_READ_S * 1.5


def read(breaker: Breaker, begin_s: float, took_s: float, outcome: IoOutcome = DONE) -> float:
    """One read, alone; when it ended."""
    assert breaker.may_read(begin_s)
    breaker.began(begin_s)
    breaker.ended(outcome, began_s=begin_s, now_s=begin_s + took_s)
    return begin_s + took_s


def tripped(now_s: float = 100.0) -> tuple[Breaker, float]:
    """A breaker that has just opened, and when."""
    breaker = Breaker()
    for _ in range(BAD_READS):
        now_s = read(breaker, now_s, 0.001, FAULT)
    assert breaker.state is BreakerState.OPEN
    return breaker, now_s


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(BreakerState, BreakerEvent)), ids=str
)
def test_a_pair_moves_as_the_table_says_or_raises(state: BreakerState, event: BreakerEvent) -> None:
    breaker = Breaker()
    breaker.state = state
    if (state, event) in MOVES:
        breaker._move(event)
        assert breaker.state is MOVES[state, event]
        return
    with pytest.raises(IllegalMove):
        breaker._move(event)
    assert breaker.state is state


def test_a_quick_tier_stays_closed() -> None:
    breaker, now_s = Breaker(), 0.0
    for _ in range(1000):
        now_s = read(breaker, now_s, SLOW_READ_S * 0.9)
    assert breaker.state is BreakerState.CLOSED


def test_half_a_window_of_slow_reads_opens_it_and_one_less_does_not() -> None:
    breaker, now_s = Breaker(), 0.0
    for _ in range(10):
        for n in range(WINDOW_READS):
            now_s = read(breaker, now_s, SLOW_S if n < BAD_READS - 1 else 0.001)
    assert breaker.state is BreakerState.CLOSED
    for _ in range(BAD_READS - 1):
        now_s = read(breaker, now_s, SLOW_S)
    assert breaker.may_read(now_s)
    read(breaker, now_s, SLOW_S)
    assert not breaker.may_read(now_s + SLOW_S)
    assert breaker.opened == 1


def test_faults_open_it_however_quick_they_are() -> None:
    breaker, now_s = tripped()
    assert not breaker.may_read(now_s)


def test_damaged_pages_and_jobs_never_begun_do_not_open_it() -> None:
    """A damaged page is the page's fault, and is dropped by itself."""
    breaker, now_s = Breaker(), 0.0
    for _ in range(100):
        now_s = read(breaker, now_s, 0.001, IoOutcome.CORRUPT)
        now_s = read(breaker, now_s, 5 * HUNG_S / 10, IoOutcome.ABANDONED)
    assert breaker.state is BreakerState.CLOSED


def test_a_deep_queue_on_a_quick_tier_is_not_slow() -> None:
    """A thousand reads at once, a millisecond each: the last waited a second for its turn."""
    breaker = Breaker()
    for _ in range(1000):
        breaker.began(0.0)
    for n in range(1000):
        breaker.ended(DONE, began_s=0.0, now_s=(n + 1) / 1000)
    assert breaker.state is BreakerState.CLOSED


def test_a_hang_is_found_though_no_read_comes_back() -> None:
    breaker = Breaker()
    breaker.began(10.0)
    breaker.began(10.0)
    assert breaker.may_read(10.0 + HUNG_S)
    assert not breaker.may_read(10.1 + HUNG_S)
    assert breaker.state is BreakerState.OPEN


def test_a_long_idle_time_is_no_hang() -> None:
    breaker = Breaker()
    now_s = read(breaker, 10.0, 0.001)
    assert breaker.may_read(now_s + 3600)
    breaker.began(now_s + 3600)
    assert breaker.may_read(now_s + 3600.5)
    breaker.ended(DONE, began_s=now_s + 3600, now_s=now_s + 3600.5)
    assert breaker._history.bit_count() == 1


def test_jobs_given_back_unbegun_do_not_hide_a_hang() -> None:
    breaker = Breaker()
    breaker.began(0.0)
    for n in range(1, 10):
        breaker.began(n / 10)
        breaker.ended(IoOutcome.ABANDONED, began_s=n / 10, now_s=n / 10 + 0.01)
    assert not breaker.may_read(HUNG_S + 0.1)


def test_it_rests_then_lets_one_read_at_a_time_through_and_closes_after_some_good_ones() -> None:
    breaker, opened_s = tripped()
    assert not breaker.may_read(opened_s + REST_MIN_S * 0.9)
    now_s = opened_s + REST_MIN_S * 1.1
    for n in range(PROBES):
        assert breaker.state is (BreakerState.HALF_OPEN if n else BreakerState.OPEN)
        assert breaker.may_read(now_s)
        breaker.began(now_s)
        assert not breaker.may_read(now_s), "a second probe beside the first"
        breaker.ended(DONE, began_s=now_s, now_s=now_s + 0.001)
        now_s += 0.001
    assert breaker.state is BreakerState.CLOSED
    assert breaker.opened == 1


@pytest.mark.parametrize(
    ("took_s", "outcome"), [(0.001, FAULT), (CLOSING_READ_S * 1.2, DONE)], ids=["fault", "slow"]
)
def test_a_bad_probe_opens_it_again_for_twice_as_long(took_s: float, outcome: IoOutcome) -> None:
    """What is quick enough to stay closed is not quick enough to close: that is the hysteresis."""
    breaker, now_s = tripped()
    rest_s = REST_MIN_S
    for _ in range(8):
        now_s = read(breaker, now_s + rest_s * 1.01, took_s, outcome)
        rest_s = min(REST_MAX_S, 2 * rest_s)
        assert not breaker.may_read(now_s + rest_s * 0.9)
    assert rest_s == REST_MAX_S
    assert breaker.opened == 1


def test_a_probe_that_hangs_opens_it_again() -> None:
    breaker, now_s = tripped()
    now_s += REST_MIN_S * 1.1
    assert breaker.may_read(now_s)
    breaker.began(now_s)
    assert not breaker.may_read(now_s + HUNG_S * 1.1)
    assert breaker.state is BreakerState.OPEN
    assert breaker.may_read(now_s + HUNG_S * 1.1 + 2 * REST_MIN_S)


def test_a_read_from_before_it_opened_is_not_believed_afterwards() -> None:
    breaker = Breaker()
    breaker.began(0.0)
    breaker.began(0.0)
    assert not breaker.may_read(HUNG_S * 2)
    now_s = HUNG_S * 2 + REST_MIN_S * 1.1
    assert breaker.may_read(now_s)
    breaker.began(now_s)
    breaker.ended(DONE, began_s=0.0, now_s=now_s)
    assert not breaker.may_read(now_s), "the probe is still out"
    breaker.ended(DONE, began_s=now_s, now_s=now_s + 0.001)
    assert breaker.may_read(now_s + 0.001)


def test_after_a_steady_time_the_rest_is_short_again() -> None:
    breaker, now_s = tripped()
    now_s = read(breaker, now_s + REST_MIN_S * 1.1, 0.001, FAULT) + 2.1 * REST_MIN_S
    for _ in range(PROBES):
        now_s = read(breaker, now_s, 0.001)
    now_s += STEADY_S
    for _ in range(BAD_READS):
        now_s = read(breaker, now_s, 0.001, FAULT)
    assert breaker.may_read(now_s + REST_MIN_S * 1.1)
    assert breaker.opened == 2


def test_opening_again_soon_rests_longer() -> None:
    breaker, now_s = tripped()
    now_s += REST_MIN_S * 1.1
    for _ in range(PROBES):
        now_s = read(breaker, now_s, 0.001)
    for _ in range(BAD_READS):
        now_s = read(breaker, now_s, 0.001, FAULT)
    assert not breaker.may_read(now_s + REST_MIN_S * 1.1)
    assert breaker.may_read(now_s + 2 * REST_MIN_S)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 5.0), st.floats(0.0, 3.0), st.sampled_from(IoOutcome), st.booleans()
        ),
        max_size=200,
    )
)
def test_whatever_happens_a_sound_tier_is_read_from_again(
    steps: list[tuple[float, float, IoOutcome, bool]],
) -> None:
    breaker, now_s = Breaker(), 0.0
    for wait_s, took_s, outcome, comes_back in steps:
        now_s += wait_s
        if breaker.may_read(now_s):
            breaker.began(now_s)
            if comes_back:
                breaker.ended(outcome, began_s=now_s, now_s=now_s + took_s)
                now_s += took_s
    for _ in range(2 * PROBES):
        now_s += REST_MAX_S
        if breaker.may_read(now_s):
            read(breaker, now_s, 0.001)
    assert breaker.state is BreakerState.CLOSED
