"""Load or compute: what is decided from which measurements; and who is not waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi.connectors.vllm.lateness import LATE_IN_A_ROW, REST_MAX_S, REST_MIN_S, Lateness
from onggi.connectors.vllm.pace import OPEN_MAX, Pace
from onggi.connectors.vllm.worth import SAMPLES_MIN, TRY_AGAIN_S, Line, Tier, Worth
from onggi_core.breaker import BreakerState

BLOCK = 16


def measured(token_s: float, host_s: float, disk_s: float, samples: int = 20) -> Worth:
    """Computing takes token_s a token, loading so long a block."""
    worth = Worth(BLOCK)
    for number in range(samples):
        tokens = 256 + 64 * (number % 3)
        worth.computed(tokens, tokens * token_s)
        for tier, block_s in ((Tier.HOST, host_s), (Tier.DISK, disk_s)):
            worth.loaded(tier, 10 + number % 5, (10 + number % 5) * block_s)
    return worth


def test_what_is_cheaper_to_load_is_loaded() -> None:
    assert measured(1e-3, 1e-4, 1e-3).take(10, 20, 0.0) == 30


def test_a_disk_slower_than_computing_is_left_alone_and_the_host_tier_is_not() -> None:
    worth = measured(1e-3, 1e-4, BLOCK * 2e-3)
    assert worth.take(10, 20, 0.0) == 30  # the one hit that is loaded to measure again
    assert worth.take(10, 20, 1.0) == 10
    assert worth.take(0, 20, 1.0) == 0
    assert worth.take(10, 0, 1.0) == 10


def test_a_host_tier_slower_than_computing_ends_the_hit() -> None:
    worth = measured(1e-5, 1e-3, 1e-2)
    worth.take(10, 20, 0.0)
    assert worth.take(10, 20, 1.0) == 0


@pytest.mark.parametrize("samples", range(SAMPLES_MIN))
def test_too_few_measurements_decide_nothing(samples: int) -> None:
    worth = measured(1e-6, 1.0, 1.0, samples)
    for now_s in (0.0, 1.0, 2.0):
        assert worth.take(10, 20, now_s) == 30


def test_a_tier_near_the_line_keeps_its_use() -> None:
    """10 % dearer than computing: used if it was used, not used if it was not."""
    near, dear = BLOCK * 1.1e-3, BLOCK * 3e-3
    worth = measured(1e-3, 1e-4, near)
    assert worth.take(0, 20, 0.0) == 20
    assert worth.take(0, 20, 1.0) == 20
    for _ in range(60):
        worth.loaded(Tier.DISK, 20, 20 * dear)
    worth.take(0, 20, 2.0)
    assert worth.take(0, 20, 3.0) == 0
    for _ in range(60):
        worth.loaded(Tier.DISK, 20, 20 * near)
    assert worth.take(0, 20, 4.0) == 0
    for _ in range(60):
        worth.loaded(Tier.DISK, 20, 20 * BLOCK * 0.5e-3)
    assert worth.take(0, 20, 5.0) == 20


def test_a_tier_that_is_not_used_is_tried_now_and_then() -> None:
    worth = measured(1e-3, 1e-4, BLOCK * 5e-3)
    worth.take(0, 20, 100.0)
    assert worth.take(0, 20, 100.0 + TRY_AGAIN_S / 2) == 0
    assert worth.take(0, 20, 100.0 + TRY_AGAIN_S) == 20
    assert worth.take(0, 20, 101.0 + TRY_AGAIN_S) == 0


def test_a_fixed_cost_makes_short_hits_not_worth_their_while() -> None:
    worth = Worth(BLOCK)
    for number in range(40):
        worth.computed(256, 256 * 1e-4)
        blocks = 4 + number % 60
        worth.loaded(Tier.DISK, blocks, 0.05 + blocks * 1e-4)
    assert worth.take(0, 100, 0.0) == 100
    worth.take(0, 4, 1.0)
    assert worth.take(0, 4, 2.0) == 0


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e3)), min_size=1, max_size=50),
    st.floats(0, 1e6),
)
def test_a_line_is_never_negative_and_never_falls(
    samples: list[tuple[float, float]], amount: float
) -> None:
    line = Line()
    for sample in samples:
        line.add(*sample)
    assert line.slope >= 0
    assert 0 <= line.seconds(amount) <= line.seconds(amount + 1)


@given(st.integers(0, 50), st.integers(0, 50), st.data())
def test_a_take_is_all_or_the_host_part_or_nothing(
    host: int, disk: int, data: st.DataObject
) -> None:
    costs = [data.draw(st.floats(1e-7, 1.0)) for _ in range(3)]
    worth = measured(*costs)
    for now_s in range(5):
        assert worth.take(host, disk, float(now_s)) in {0, host, host + disk}


def test_a_step_begins_with_its_plan_or_with_the_report_before_it() -> None:
    pace = Pace()
    assert pace.planned(63, 0.0) == 0
    first = pace.planned(100, 0.0)
    second = pace.planned(200, 1.0)  # planned ahead
    assert pace.reported(first, 4.0) == (100, 4.0)
    assert pace.reported(second, 6.0) == (200, 2.0)
    third = pace.planned(300, 9.0)
    assert pace.reported(third, 10.0) == (300, 1.0)
    assert pace.reported(third, 11.0) is None


def test_steps_that_are_never_reported_are_bounded() -> None:
    pace = Pace()
    numbers = [pace.planned(100, 0.0) for _ in range(OPEN_MAX + 1)]
    assert pace.reported(numbers[0], 1.0) is None
    assert pace.reported(numbers[-1], 2.0) == (100, 1.0)


def test_late_loads_in_a_row_end_the_waiting_for_a_while() -> None:
    lateness = Lateness()
    for _ in range(LATE_IN_A_ROW - 1):
        lateness.came(1.0, late=True)
    lateness.came(1.0, late=False)  # not in a row
    for _ in range(LATE_IN_A_ROW):
        assert lateness.may_wait(2.0)
        lateness.came(2.0, late=True)
    assert not lateness.may_wait(2.0 + REST_MIN_S / 2)
    assert lateness.may_wait(2.0 + REST_MIN_S)  # one
    assert not lateness.may_wait(2.1 + REST_MIN_S)  # and no other
    lateness.came(3.0 + REST_MIN_S, late=False)
    assert lateness.state is BreakerState.CLOSED


def test_each_late_probe_doubles_the_rest_up_to_a_bound() -> None:
    lateness, now_s, rest_s = Lateness(), 0.0, REST_MIN_S
    for _ in range(LATE_IN_A_ROW):
        lateness.came(now_s, late=True)
    for _ in range(8):
        assert not lateness.may_wait(now_s + rest_s * 0.99)
        now_s += rest_s
        assert lateness.may_wait(now_s)
        lateness.came(now_s, late=True)
        rest_s = min(REST_MAX_S, 2 * rest_s)
    assert rest_s == REST_MAX_S


def test_a_probe_that_is_never_heard_of_again_does_not_end_the_probing() -> None:
    lateness = Lateness()
    for _ in range(LATE_IN_A_ROW):
        lateness.came(0.0, late=True)
    assert lateness.may_wait(REST_MIN_S)
    assert not lateness.may_wait(REST_MIN_S + 1)
    assert lateness.may_wait(2 * REST_MIN_S)
