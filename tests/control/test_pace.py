"""How much is written, and what first."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.kube.pace import WRITES_AT_ONCE, WRITES_PER_S, Pace
from onggi_operator.plan.writes import (
    COUNTED_PER_ROUND_MIN,
    WRITES_PER_ROUND_MAX,
    Due,
    Waiting,
    first_of,
)

A_SECOND_MAX = 20


def test_the_bounds_are_what_the_page_says() -> None:
    assert WRITES_AT_ONCE + WRITES_PER_S == A_SECOND_MAX
    assert WRITES_PER_ROUND_MAX == 2 * WRITES_PER_S


def test_a_few_go_at_once_and_the_others_in_line() -> None:
    pace = Pace(per_s=10, at_once=2)
    assert [round(pace.wait_s(5.0), 6) for _ in range(4)] == [0, 0, 0.1, 0.2]
    assert round(pace.wait_s(5.1), 6) == 0.2, "behind those that wait"
    assert pace.wait_s(99.0) == 0


@given(st.lists(st.floats(0, 2).filter(lambda gap: gap == 0 or gap > 1e-6), max_size=200))
def test_in_no_second_is_more_written_than_may_be(gaps: list[float]) -> None:
    pace, now_s, sent = Pace(), 100.0, []
    for gap in gaps:
        now_s += gap
        sent.append(now_s + pace.wait_s(now_s))
    assert all(after >= before - 1e-9 for before, after in pairwise(sent)), "first come, first go"
    for at, begin_s in enumerate(sent):
        beyond = at + A_SECOND_MAX
        assert beyond >= len(sent) or sent[beyond] >= begin_s + 1 - 1e-9


def waiting(due: Due, *written: int) -> list[Waiting[str]]:
    return [Waiting(due, float(at), f"{due.name.lower()}-{at}") for at in written]


def test_what_happened_goes_before_what_was_counted_and_who_waited_longest_first() -> None:
    both = waiting(Due.COUNTED, 1, 2) + waiting(Due.HAPPENED, 9, 3, 7)
    assert first_of(both, 9) == ["happened-3", "happened-7", "happened-9", "counted-1", "counted-2"]
    assert first_of(both, 4) == ["happened-3", "happened-7", "counted-1", "counted-2"]
    assert first_of(both, 0) == first_of([], 5) == []


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 40))
def test_a_round_is_full_and_leaves_no_kind_behind(happened: int, counted: int, most: int) -> None:
    both = waiting(Due.HAPPENED, *range(happened)) + waiting(Due.COUNTED, *range(counted))
    first = first_of(both, most)
    assert len(first) == min(most, happened + counted)
    kept = [one for one in first if one.startswith("counted")]
    assert len(kept) >= min(COUNTED_PER_ROUND_MIN, counted, most)
    assert kept == [f"counted-{at}" for at in range(len(kept))]
