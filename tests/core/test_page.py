"""The table of moves: every pair of state and event, legal or refused without a trace."""

from __future__ import annotations

import itertools

import pytest

from onggi_core.errors import IllegalMove
from onggi_core.page import MOVES, Block, Page, PageEvent, PageState, move


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PageState, PageEvent)))
def test_a_pair_moves_as_the_table_says_or_raises(state, event) -> None:
    if (state, event) in MOVES:
        assert move(state, event) is MOVES[state, event]
        return
    page = Page(Block(b"k" * 16, b"p" * 16), 0)
    page.state = state
    with pytest.raises(IllegalMove):
        page.on(event)
    assert page.state is state


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
