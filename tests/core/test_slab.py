"""Room in regions: no place twice, no page across a boundary, everything given back is found."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_core.errors import BadRequest
from onggi_core.region import FREE, RETIRED
from onggi_core.slab import Slab


def slab(regions: int = 2, region_bytes: int = 100) -> Slab:
    made = Slab(region_bytes)
    for number in range(regions):
        made.add_region(number)
    return made


def take(made: Slab, stride: int) -> int | None:
    """One page; its place."""
    found = made.take(stride, [7])
    return None if found is None else found[0]


def test_places_are_handed_out_lowest_first_and_never_across_a_region() -> None:
    made = slab()
    assert [take(made, 30) for _ in range(7)] == [0, 30, 60, 100, 130, 160, None]


def test_pages_asked_for_together_lie_in_a_row() -> None:
    made = slab()
    assert take(made, 10) == 0
    assert made.take(10, range(9)) == (10, 9)
    made.give_back(30)
    made.give_back(50)
    made.give_back(60)
    assert made.take(10, [1, 2]) == (50, 2)
    assert made.take(10, range(20)) == (100, 10)
    assert made.take(10, range(20)) == (30, 1)
    assert made.take(10, range(20)) is None


def test_a_whole_run_in_a_fresh_region_goes_before_scraps_of_an_old_one() -> None:
    made = slab()
    made.take(10, range(10))
    made.give_back(40)
    assert made.take(10, range(5)) == (100, 5)
    assert made.take(10, range(8)) == (150, 4)
    assert made.take(10, range(8)) == (40, 1)


def test_each_page_knows_its_owner() -> None:
    made = slab()
    made.take(10, [5, 6, 7])
    made.disown(10, RETIRED)
    assert list(made.owners_in(0))[:4] == [5, RETIRED, 7, FREE]
    assert made.owner(20) == 7
    assert made.used_in(0) == 2


def test_a_retired_page_is_never_given_again() -> None:
    made = slab(regions=1)
    made.take(50, [1, 2])
    made.disown(0, RETIRED)
    made.give_back(50)
    assert [take(made, 50), take(made, 50)] == [50, None]
    assert take(made, 30) is None


def test_what_is_found_is_the_lowest_run_whatever_was_given_and_freed() -> None:
    dice, made = random.Random(1), slab(regions=1, region_bytes=64)
    free = [True] * 64
    for _ in range(2000):
        count = dice.randint(1, 4)
        lowest = next((n for n in range(65 - count) if all(free[n : n + count])), None)
        if lowest is not None and dice.random() < 0.6:
            assert made.take(1, range(count)) == (lowest, count)
            free[lowest : lowest + count] = [False] * count
        elif not all(free):
            place = dice.choice([n for n in range(64) if not free[n]])
            made.give_back(place)
            free[place] = True


def test_an_empty_region_goes_to_another_size() -> None:
    made = slab(regions=1)
    place = take(made, 30)
    assert take(made, 50) is None
    made.give_back(place)
    assert [take(made, 50) for _ in range(3)] == [0, 50, None]


def test_a_page_larger_than_a_region_has_no_place() -> None:
    assert take(slab(), 101) is None


def test_a_withdrawn_region_hands_out_nothing_until_it_is_restored() -> None:
    made = slab()
    assert take(made, 50) == 0
    made.withdraw(0)
    made.withdraw(1)
    assert take(made, 50) is None
    made.give_back(0)
    assert take(made, 50) is None
    made.restore(1)
    assert take(made, 50) == 100
    made.restore(0)
    assert [take(made, 50) for _ in range(4)] == [0, 50, 150, None]


def test_a_region_leaves_only_when_it_is_empty_and_may_come_again() -> None:
    made = slab(regions=1)
    place = take(made, 50)
    made.withdraw(0)
    with pytest.raises(BadRequest):
        made.remove_region(0)
    made.give_back(place)
    made.remove_region(0)
    assert take(made, 50) is None
    made.add_region(0)
    assert take(made, 30) == 0


def test_adopted_places_are_in_use_and_the_rest_of_their_region_free() -> None:
    made = slab()
    made.adopt(30, [130, 160], [1, 2])
    assert [take(made, 30) for _ in range(5)] == [100, 0, 30, 60, None]


@pytest.mark.parametrize("places", [[10], [100, 115], [300], [90]])
def test_a_place_that_is_no_page_is_refused(places) -> None:
    made = slab()
    with pytest.raises(BadRequest):
        made.adopt(30, places, list(range(len(places))))
    assert made.room(30) == 6


def test_a_page_in_use_is_not_adopted() -> None:
    made = slab()
    take(made, 30)
    with pytest.raises(BadRequest):
        made.adopt(30, [0], [1])


def test_a_region_is_added_once() -> None:
    with pytest.raises(BadRequest):
        slab().add_region(1)


@given(
    st.lists(
        st.tuples(st.sampled_from([7, 30, 50]), st.booleans(), st.integers(0, 99)), max_size=60
    )
)
def test_live_pages_never_overlap(moves) -> None:
    made = slab(regions=3)
    live: dict[int, int] = {}
    for stride, taking, pick in moves:
        if taking:
            found = made.take(stride, range(1 + pick % 5))
            if found is not None:
                live |= {found[0] + at * stride: stride for at in range(found[1])}
        elif live:
            place = sorted(live)[pick % len(live)]
            del live[place]
            made.give_back(place)
    spans = sorted((place, place + stride) for place, stride in live.items())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert all(begin // 100 == (end - 1) // 100 < 3 for begin, end in spans)
    assert sum(made.used_in(number) for number in range(3)) == len(live)
