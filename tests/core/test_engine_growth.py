"""A life that begins below the budget that it may grow to."""

from __future__ import annotations

from onggi_core.engine.actions import ReleaseExtent, TouchExtent
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import BudgetSet, ExtentTouched
from onggi_core.engine.state import Facts

MIB = 1 << 20


def facts(extents: int) -> Facts:
    return Facts(
        epoch=b"e" * 16,
        arena="arena",
        arena_bytes=(2 + extents) * MIB,
        data_offset=2 * MIB,
        extent_bytes=MIB,
        extents=extents,
    )


def test_what_the_shell_touches_unasked_is_waited_for_and_the_rest_asked_for_when_it_grows() -> (
    None
):
    engine = Engine(facts(6))
    assert engine.step(BudgetSet(2, 0), 0.0) == []
    for number in range(2):
        assert engine.step(ExtentTouched(number), 0.0) == []
    assert engine.step(BudgetSet(4, 0), 1.0) == [TouchExtent(2), TouchExtent(3)]
    assert engine.step(ExtentTouched(2), 1.0) == []
    assert engine.stats()["arena_ready_bytes"] == 3 * MIB


def test_an_extent_that_comes_after_the_budget_fell_is_given_back() -> None:
    engine = Engine(facts(4))
    assert engine.step(BudgetSet(4, 0), 0.0) == []
    assert engine.step(ExtentTouched(0), 0.0) == []
    assert engine.step(BudgetSet(1, 0), 1.0) == []
    assert engine.step(ExtentTouched(1), 1.0) == [ReleaseExtent(1)]
    assert engine.step(BudgetSet(2, 0), 2.0) == []  # two are still on their way
    assert engine.step(ExtentTouched(2), 2.0) == []
    assert engine.step(ExtentTouched(3), 2.0) == [ReleaseExtent(3)]
    assert engine.step(BudgetSet(3, 0), 3.0) == [TouchExtent(1)]
