"""Sharing out a node's memory: budgets kept, value sought, rest found, noise ignored."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi_operator.plan.rebalance import UNIT_BYTES, Sharing, Taker, Why, even_share, share_out
from onggi_operator.plan.worth import Worth, worth_of

GIB = 1 << 30
STEP = 8 * UNIT_BYTES
LOADED = settings(suppress_health_check=[HealthCheck.too_slow])  # of a busy machine


def taker(uid: str, now: int, **changes: object) -> Taker:
    made = Taker(uid, UNIT_BYTES, 64 * UNIT_BYTES, now * UNIT_BYTES, STEP, 0.05, None)
    return replace(made, **changes)  # type: ignore[arg-type]


def worth(rate: float, *points: tuple[int, float]) -> Worth:
    curve = tuple((units * UNIT_BYTES, share) for units, share in points)
    found = worth_of(curve, tokens_per_s=rate)
    assert found is not None
    return found


def units(sharing: Sharing) -> dict[str, int]:
    return {uid: size // UNIT_BYTES for uid, size in sharing.sizes.items()}


def value(takers: list[Taker], sizes: dict[str, int]) -> float:
    return sum(one.worth.at(sizes[one.uid]) for one in takers if one.worth is not None)


CURVE = st.lists(
    st.tuples(st.integers(1, 80), st.floats(0, 1, allow_nan=False)),
    min_size=1,
    max_size=5,
    unique_by=lambda point: point[0],
).map(sorted)


@st.composite
def a_taker(draw: st.DrawFn) -> Taker:
    floor = draw(st.integers(1, 8))
    ceiling = draw(st.integers(floor, 40))
    known = draw(st.booleans())
    curve = draw(CURVE)
    return taker(
        f"agent-{draw(st.integers(0, 10**6))}",
        draw(st.integers(floor, ceiling)),
        floor_bytes=floor * UNIT_BYTES,
        ceiling_bytes=ceiling * UNIT_BYTES,
        step_bytes=draw(st.sampled_from((0, UNIT_BYTES, STEP))),
        worth=worth(draw(st.floats(0, 1000)), *curve) if known else None,
    )


TAKERS = st.lists(a_taker(), max_size=5, unique_by=lambda one: one.uid)
BUDGETS = st.integers(0, 200).map(lambda count: count * UNIT_BYTES)


@LOADED
@given(TAKERS, BUDGETS)
def test_the_budget_is_kept_but_for_what_was_promised(takers: list[Taker], budget: int) -> None:
    sharing = share_out(takers, budget)
    assert sum(sharing.sizes.values()) <= max(budget, sum(one.floor_bytes for one in takers))
    for one in takers:
        assert one.floor_bytes <= sharing.sizes[one.uid] <= one.ceiling_bytes


@LOADED
@given(TAKERS, BUDGETS)
def test_the_order_of_agents_is_no_matter(takers: list[Taker], budget: int) -> None:
    assert share_out(takers, budget) == share_out(takers[::-1], budget)


@LOADED
@given(TAKERS, BUDGETS)
def test_nobody_moves_by_more_than_a_step_unless_the_budget_asks_for_it(
    takers: list[Taker], budget: int
) -> None:
    now = sum(one.now_bytes for one in takers)
    for move in share_out(takers, max(budget, now)).moves:
        one = next(one for one in takers if one.uid == move.uid)
        if one.worth is not None:
            assert abs(move.to_bytes - move.from_bytes) <= one.step_bytes


@LOADED
@given(TAKERS, BUDGETS)
def test_each_round_brings_more_and_rounds_come_to_rest(takers: list[Taker], budget: int) -> None:
    """In as many rounds as the largest way has steps, twice over for those who wait for others."""
    budget = max(budget, sum(one.now_bytes for one in takers))
    before = value(takers, {one.uid: one.now_bytes for one in takers})
    for _ in range(2 * 40 * UNIT_BYTES // UNIT_BYTES + 2):
        sharing = share_out(takers, budget)
        after = value(takers, dict(sharing.sizes))
        assert after >= before - 1e-6
        if not sharing.moves:
            return
        before = after
        takers = [replace(one, now_bytes=sharing.sizes[one.uid]) for one in takers]
    raise AssertionError(sharing)


@LOADED
@given(TAKERS, BUDGETS, st.integers(1, 50))
def test_more_memory_is_never_worth_less(takers: list[Taker], budget: int, more: int) -> None:
    less = value(takers, dict(share_out(takers, budget).sizes))
    after = share_out(takers, budget + more * UNIT_BYTES)
    floor = sum(one.worth.at(one.floor_bytes) for one in takers if one.worth)
    # What is not known yet goes first, so what is known may wait; it keeps what it has.
    if all(one.worth is not None and one.step_bytes for one in takers):
        assert value(takers, dict(after.sizes)) >= less * 0.95 - 1e-6
    assert value(takers, dict(after.sizes)) >= floor - 1e-6


@settings(LOADED, max_examples=50)
@given(st.integers(0, 2**32), st.floats(0.01, 0.3))
def test_noise_under_the_threshold_moves_nothing(seed: int, threshold: float) -> None:
    """Curves off by `a` promise at most (1 + a) / (1 - a) at what is best already."""
    dice = random.Random(seed)
    curves = [
        (
            dice.uniform(10, 1000),
            [(size, share) for size, share in ((8, dice.random() / 2), (32, 0.5), (60, 0.6))],
        )
        for _ in range(3)
    ]
    takers = [
        taker(f"{number}", 16, threshold=0.0, worth=worth(rate, *curve))
        for number, (rate, curve) in enumerate(curves)
    ]
    budget = 48 * UNIT_BYTES
    for _ in range(200):
        sharing = share_out(takers, budget)
        if not sharing.moves:
            break
        takers = [replace(one, now_bytes=sharing.sizes[one.uid]) for one in takers]
    assert not sharing.moves
    off = threshold / (2 + threshold) * 0.9
    for _ in range(5):
        noisy = [
            replace(
                one,
                threshold=threshold,
                worth=worth(rate, *((s, v * (1 + dice.uniform(-off, off))) for s, v in curve)),
            )
            for one, (rate, curve) in zip(takers, curves, strict=True)
        ]
        assert share_out(noisy, budget).moves == ()


def test_what_is_free_goes_evenly_to_those_of_whom_nothing_is_known() -> None:
    sharing = share_out([taker("a", 1), taker("b", 5), taker("c", 1)], 30 * UNIT_BYTES)
    assert units(sharing) == {"a": 10, "b": 10, "c": 10}
    assert {move.why for move in sharing.moves} == {Why.ROOM}


def test_what_is_free_and_brings_nothing_stays_free() -> None:
    flat = worth(100.0, (1, 0.3), (64, 0.3))
    assert share_out([taker("a", 4, worth=flat)], 30 * UNIT_BYTES).moves == ()


def test_a_smaller_budget_is_taken_where_it_brings_least() -> None:
    steep, flat = worth(100.0, (20, 0.9)), worth(100.0, (20, 0.1))
    takers = [taker("a", 20, worth=steep), taker("b", 20, worth=flat)]
    sharing = share_out(takers, 25 * UNIT_BYTES)
    assert units(sharing) == {"a": 20, "b": 5}
    assert [(move.uid, move.why) for move in sharing.moves] == [("b", Why.BUDGET_SHRANK)]


def test_memory_changes_hands_a_step_at_a_time_and_both_are_told_why() -> None:
    steep, flat = worth(100.0, (40, 0.9)), worth(100.0, (40, 0.1))
    takers = [taker("a", 20, worth=steep), taker("b", 20, worth=flat)]
    sharing = share_out(takers, 40 * UNIT_BYTES)
    assert units(sharing) == {"a": 28, "b": 12}
    assert {move.uid: move.why for move in sharing.moves} == {
        "a": Why.WORTH_MORE,
        "b": Why.WORTH_LESS,
    }
    assert sharing.moves[0].gain_tokens_per_s == pytest.approx(18.0)
    assert sharing.promised > sharing.wanted == 0.05


def test_less_than_the_threshold_moves_nothing_and_says_what_it_would_bring() -> None:
    some, more = worth(100.0, (20, 0.50), (40, 0.60)), worth(100.0, (20, 0.50), (40, 0.61))
    takers = [taker("a", 30, worth=some), taker("b", 30, worth=more)]
    sharing = share_out(takers, 60 * UNIT_BYTES)
    assert sharing.moves == ()
    assert 0 < sharing.promised < sharing.wanted


def test_whose_turn_it_is_not_keeps_what_it_has() -> None:
    steep, flat = worth(100.0, (40, 0.9)), worth(100.0, (40, 0.1))
    takers = [taker("a", 20, worth=steep, step_bytes=0), taker("b", 20, worth=flat)]
    assert share_out(takers, 40 * UNIT_BYTES).moves == ()


@LOADED
@given(TAKERS, BUDGETS)
def test_the_even_share_fills_and_never_overflows(takers: list[Taker], budget: int) -> None:
    level = even_share([(one.floor_bytes, one.ceiling_bytes) for one in takers], budget)
    taken = sum(max(one.floor_bytes, min(level, one.ceiling_bytes)) for one in takers)
    assert taken <= max(budget, sum(one.floor_bytes for one in takers))
