"""The boundary with the engine, and the counters that pass it."""

from __future__ import annotations

import threading

import pytest

from onggi.connectors.vllm.guard import FAULTS_MAX, Faults, hook
from onggi.connectors.vllm.metadata import Report
from onggi.connectors.vllm.tally import Tally


class Side:
    def __init__(self) -> None:
        self.faults = Faults("scheduler")

    @hook(lambda: (0, False))
    def matched(self, tokens: int) -> tuple[int, bool]:
        """What it would have said."""
        return 100 // tokens, True


def test_an_error_is_a_miss_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    side = Side()
    assert side.matched(10) == (10, True)
    for _ in range(5):
        assert side.matched(0) == (0, False)
    assert side.faults.by_hook == {"matched": 5}
    assert [r.message for r in caplog.records] == [
        "onggi: scheduler.matched failed; it counts as a miss"
    ]
    assert "ZeroDivisionError" in caplog.text


def test_too_many_errors_are_an_end_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    side = Side()
    for _ in range(FAULTS_MAX + 10):
        assert not side.faults.too_many or side.faults.total >= FAULTS_MAX
        side.matched(0)
    assert side.faults.too_many
    assert caplog.text.count("stands back") == 1


def test_a_signal_to_end_is_not_caught() -> None:
    class Ending(Side):
        @hook(lambda: None)
        def matched(self, tokens: int) -> tuple[int, bool]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ending().matched(1)


def test_the_wrapped_hook_keeps_its_name() -> None:
    assert Side.matched.__name__ == "matched"
    assert Side.matched.__doc__ == "What it would have said."


def test_counts_from_many_threads_add_up() -> None:
    tally, taken = Tally(), 0.0

    def add() -> None:
        for _ in range(1000):
            tally.add("saved_blocks", 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        taken += tally.take().get("saved_blocks", 0)
    for thread in threads:
        thread.join()
    assert taken + tally.take().get("saved_blocks", 0) == 4000
    assert tally.take() == {}


def test_reports_of_ranks_add_up_to_the_fewest_blocks() -> None:
    one = Report({1: (5, 1), 2: (3, 1)}, {7: 1}, {9}, seconds={1: 0.25, 2: 0.5}, step=3)
    two = Report({1: (4, 1)}, {7: 1, 8: 1}, seconds={1: 1.0}, step=3)
    both = one.merged(two)
    assert both.loaded == {1: (4, 2), 2: (3, 1)}
    assert both.saves_over == {7: 2, 8: 1}
    assert both.saves_dropped == {9}
    assert both.seconds == {1: 1.0, 2: 0.5}  # the request waited for the slowest
    assert both.step == 3
    assert both == two.merged(one)
    assert not Report()
