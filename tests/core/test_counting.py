"""Columns of numbers in a row are those that a range gives."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from onggi_core.index.counting import in_a_row

TOP = 2**32 - 1


@given(st.integers(0, TOP), st.integers(0, 9000), st.integers(0, 2**20), st.booleans())
def test_numbers_in_a_row_are_those_of_a_range(
    last: int, count: int, step: int, at_the_end: bool
) -> None:
    reach = max(0, count - 1) * step
    first = TOP - reach if at_the_end else min(last, TOP - reach)
    if first < 0:
        first, count = 0, 0
    wanted = array("I", [first + n * step for n in range(count)])
    assert in_a_row(first, count, step, "I") == wanted


def test_signed_numbers_reach_as_far_as_their_column() -> None:
    assert in_a_row(2**31 - 200, 200) == array("i", range(2**31 - 200, 2**31))
    assert in_a_row(0, 0) == array("i")
