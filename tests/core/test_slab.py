"""Room in regions: no place twice, no page across a boundary, everything given back is found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.errors import BadRequest
from onggi_core.slab import Slab


def slab(regions: int = 2, region_bytes: int = 100) -> Slab:
    made = Slab(region_bytes)
    for number in range(regions):
        made.add_region(number)
    return made


def test_places_are_handed_out_lowest_first_and_never_across_a_region() -> None:
    made = slab()
    assert [made.take(30) for _ in range(7)] == [0, 30, 60, 100, 130, 160, None]


def test_an_empty_region_goes_to_another_size() -> None:
    made = slab(regions=1)
    place = made.take(30)
    assert made.take(50) is None
    made.give_back(place)
    assert [made.take(50) for _ in range(3)] == [0, 50, None]


def test_a_page_larger_than_a_region_has_no_place() -> None:
    assert slab().take(101) is None


def test_a_withdrawn_region_hands_out_nothing_until_it_is_restored() -> None:
    made = slab()
    assert made.take(50) == 0
    made.withdraw(0)
    made.withdraw(1)
    assert made.take(50) is None
    made.give_back(0)
    assert made.take(50) is None
    made.restore(1)
    assert made.take(50) == 100
    made.restore(0)
    assert [made.take(50) for _ in range(4)] == [150, 0, 50, None]


def test_adopted_places_are_in_use_and_the_rest_of_their_region_free() -> None:
    made = slab()
    made.adopt(30, [130, 160])
    assert [made.take(30) for _ in range(5)] == [100, 0, 30, 60, None]


@pytest.mark.parametrize("places", [[10], [100, 115], [300]])
def test_a_place_that_is_no_page_is_refused(places) -> None:
    with pytest.raises(BadRequest):
        slab().adopt(30, places)


def test_a_region_is_added_once() -> None:
    with pytest.raises(BadRequest):
        slab().add_region(1)


@given(st.lists(st.tuples(st.sampled_from([7, 30, 50]), st.booleans(), st.integers(0, 99))))
def test_live_pages_never_overlap(moves) -> None:
    made = slab(regions=3)
    live: dict[int, int] = {}
    for stride, taking, pick in moves:
        if taking:
            place = made.take(stride)
            if place is not None:
                live[place] = stride
        elif live:
            place = sorted(live)[pick % len(live)]
            del live[place]
            made.give_back(place)
    spans = sorted((place, place + stride) for place, stride in live.items())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert all(begin // 100 == (end - 1) // 100 < 3 for begin, end in spans)
