"""Where a prompt is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.errors import BadRequest
from onggi_core.segments import Segments


def test_segments_grow_with_distance_and_go_on_at_the_last_length() -> None:
    cut = Segments(16)
    assert cut.pieces(0, 16384) == [64, 64, 128, 256, 3584, 4096, 4096, 4096]
    assert cut.end_after(0) == 64
    assert cut.end_after(63) == 64
    assert cut.end_after(64) == 128


def test_a_run_that_begins_inside_a_segment_ends_with_it() -> None:
    assert Segments(16).pieces(60, 10) == [4, 6]


def test_ends_can_be_given_and_blocks_larger_than_a_segment_are_one_each() -> None:
    assert Segments(16, (32, 64)).pieces(0, 7) == [2, 2, 2, 1]
    assert Segments(512, (100, 200, 300)).pieces(0, 3) == [1, 1, 1]


@pytest.mark.parametrize("ends", [(), (0, 5), (5, 5), (5, 3)])
def test_ends_that_do_not_rise_are_refused(ends) -> None:
    with pytest.raises(BadRequest):
        Segments(16, ends)


@given(st.integers(0, 100_000), st.integers(0, 20_000), st.sampled_from([1, 16, 100, 256, 512]))
def test_pieces_add_up_and_none_is_empty(depth, count, block_tokens) -> None:
    pieces = Segments(block_tokens).pieces(depth, count)
    assert sum(pieces) == count
    assert all(piece > 0 for piece in pieces)
