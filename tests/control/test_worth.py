"""What memory is worth: the hull of a curve, and what a disk beside it changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.plan.worth import DISK_HIT_WORTH, worth_of

CURVES = st.dictionaries(
    st.integers(1, 1 << 40), st.floats(0, 1, allow_nan=False), min_size=1, max_size=8
).map(lambda points: sorted(points.items()))


def test_without_a_curve_nothing_is_known() -> None:
    assert worth_of((), tokens_per_s=10.0) is None


def test_between_sizes_that_were_measured_it_is_a_line_and_beyond_them_no_more() -> None:
    worth = worth_of(((100, 0.4), (200, 0.6)), tokens_per_s=10.0)
    assert worth is not None
    assert [worth.at(size) for size in (0, 50, 100, 150, 200, 999)] == pytest.approx(
        [0.0, 2.0, 4.0, 5.0, 6.0, 6.0]
    )


def test_a_cliff_is_worth_the_way_to_it() -> None:
    """A loop that does not fit hits nothing until all of it fits."""
    worth = worth_of(((100, 0.0), (200, 0.8)), tokens_per_s=10.0)
    assert worth is not None
    assert worth.at(100) == pytest.approx(4.0)


def test_what_lies_on_disk_is_hit_anyway_and_memory_spares_the_reading() -> None:
    worth = worth_of(((100, 0.4), (200, 0.6)), tokens_per_s=10.0, disk_bytes=200)
    assert worth is not None
    assert worth.at(0) == pytest.approx(6.0 * DISK_HIT_WORTH)
    assert worth.at(200) == pytest.approx(6.0)


@given(CURVES, st.integers(0, 1 << 41), st.integers(0, 1 << 41), st.integers(0, 1 << 40))
def test_more_is_never_worth_less_and_each_part_no_more_than_the_one_before(
    curve: list[tuple[int, float]], size: int, other: int, disk: int
) -> None:
    worth = worth_of(tuple(curve), tokens_per_s=100.0, disk_bytes=disk)
    assert worth is not None
    low, high = sorted((size, other))
    middle = (low + high) // 2
    assert worth.at(low) <= worth.at(high) + 1e-9
    assert worth.at(middle) + 1e-6 >= worth.at(low) + (worth.at(high) - worth.at(low)) * (
        (middle - low) / (high - low) if high > low else 0.0
    )
