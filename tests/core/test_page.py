"""The table of moves: every pair of state and event, legal or refused without a trace."""

from __future__ import annotations

import itertools

import pytest

from onggi_core.errors import IllegalMove
from onggi_core.index.pages import Pages
from onggi_core.page import MOVES, PageEvent, PageState, move


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PageState, PageEvent)))
def test_a_pair_moves_as_the_table_says_or_raises(state, event) -> None:
    if (state, event) in MOVES:
        assert move(state, event) is MOVES[state, event]
        return
    with pytest.raises(IllegalMove):
        move(state, event)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PageState, PageEvent)))
@pytest.mark.parametrize("blocks", [range(1, 4), [1, 2, 3]])
def test_a_run_of_pages_moves_as_one_page_does_or_none_of_it(state, event, blocks) -> None:
    pages = Pages()
    pages.grow(5)
    pages.states[1:4] = bytes([state] * 3)
    if (state, event) in MOVES:
        pages.on_all(blocks, event)
        assert list(pages.states) == [0, *[MOVES[state, event]] * 3, 0]
        return
    before = bytes(pages.states)
    with pytest.raises(IllegalMove):
        pages.on_all(blocks, event)
    with pytest.raises(IllegalMove):
        pages.on(2, event)
    assert pages.states == before


@pytest.mark.parametrize("blocks", [range(1, 4), [3, 1, 2]])
def test_pins_are_counted_beyond_what_a_byte_holds(blocks) -> None:
    pages = Pages()
    pages.grow(5)
    pages.states[1:4] = bytes([PageState.SEALED] * 3)
    for _ in range(600):
        pages.pin(blocks)
    pages.pin([2])
    assert [pages.pins_of(block) for block in range(5)] == [0, 600, 601, 600, 0]
    for _ in range(600):
        pages.unpin(blocks)
    assert [pages.state(block).name for block in range(1, 4)] == ["SEALED", "READING", "SEALED"]
    pages.unpin([2])
    with pytest.raises(IllegalMove):
        pages.unpin([2])


def test_nothing_leads_from_a_page_being_filled_to_being_read() -> None:
    for filling in (PageState.RESERVED, PageState.PROMOTING, PageState.QUARANTINED):
        after = {to for (state, _), to in MOVES.items() if state is filling}
        assert PageState.READING not in after


def test_a_page_in_use_is_never_free_in_one_move() -> None:
    assert (PageState.READING, PageEvent.EVICTED) not in MOVES
    assert (PageState.READING, PageEvent.ABANDONED) not in MOVES


def test_every_state_is_reached_and_only_retired_is_final() -> None:
    assert {to for _, to in MOVES.items()} == set(PageState)
    assert set(PageState) - {state for state, _ in MOVES} == {PageState.RETIRED}
