"""Live budgets that change again before what they asked for is done."""

from __future__ import annotations

from shell import Shell

from onggi_core.engine.actions import ReleaseExtent, TouchExtent
from onggi_core.engine.events import BudgetSet, ExtentTouched


def test_an_extent_on_its_way_is_not_asked_for_again() -> None:
    """A budget down and up again while extents were being touched forgot them, and asked anew: for
    a while more memory was touched than the budget says."""
    shell = Shell(extents=4, segments=0)
    shell.step(BudgetSet(1, 0))
    asked = shell.step(BudgetSet(3, 0))
    touched = [action.number for action in asked if isinstance(action, TouchExtent)]
    assert len(touched) == 2
    assert shell.step(BudgetSet(1, 0)) == []
    assert shell.step(BudgetSet(3, 0)) == []
    for number in touched:
        shell.touch(number)
    assert shell.stats()["arena_ready_bytes"] == shell.stats()["arena_budget_bytes"]


def test_an_extent_that_comes_after_the_budget_fell_goes_back_at_once() -> None:
    shell = Shell(extents=2, segments=0)
    shell.step(BudgetSet(1, 0))
    (asked,) = shell.step(BudgetSet(2, 0))
    shell.step(BudgetSet(1, 0))
    shell.extents_held.add(asked.number)
    assert shell.step(ExtentTouched(asked.number)) == [ReleaseExtent(asked.number)]
