"""When an agent is tried again, and what is said meanwhile."""

from __future__ import annotations

import logging

import pytest

from onggi.patience import BACKOFF_FIRST_S, BACKOFF_MAX_S, LATE_IN_A_ROW_MAX, Patience

LOG = logging.getLogger("onggi")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> Patience:
    return Patience(LOG, "agent", clock)


def wait_after_next_failure(patience: Patience, clock: Clock) -> float:
    """Seconds until it may be tried again, to the millisecond."""
    patience.failed("gone")
    begun_s = clock.now_s
    while not patience.may_try():
        clock.now_s += 0.001
    return clock.now_s - begun_s


def test_the_wait_doubles_up_to_a_bound(patience: Patience, clock: Clock) -> None:
    waits = [wait_after_next_failure(patience, clock) for _ in range(12)]
    expected = [min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**n) for n in range(12)]
    assert waits == pytest.approx(expected, abs=0.002)
    assert waits[-1] == pytest.approx(BACKOFF_MAX_S, abs=0.002)


def test_a_success_starts_over(patience: Patience, clock: Clock) -> None:
    for _ in range(5):
        wait_after_next_failure(patience, clock)
    patience.went_well()
    assert patience.may_try()
    assert wait_after_next_failure(patience, clock) == pytest.approx(BACKOFF_FIRST_S, abs=0.002)


def test_one_line_for_a_trouble_and_one_for_its_end(
    patience: Patience, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for _ in range(20):
            wait_after_next_failure(patience, clock)
        patience.went_well()
        patience.went_well()
    assert [record.message.split(" ")[1] for record in caplog.records] == ["agent:", "agent"] * 3


def test_only_lateness_in_a_row_ends_a_connection(patience: Patience) -> None:
    for _ in range(5):
        for _ in range(LATE_IN_A_ROW_MAX - 1):
            assert not patience.was_late("slow")
        patience.went_well()
    for _ in range(LATE_IN_A_ROW_MAX - 1):
        assert not patience.was_late("slow")
    assert patience.was_late("slow")
