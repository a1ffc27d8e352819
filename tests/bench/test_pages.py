"""The memory that is copied from and to."""

from __future__ import annotations

from bench.pages import Region, chain, same
from bench.sizes import MIB


def test_batches_walk_through_a_region_and_begin_anew() -> None:
    region = Region(4 * MIB)
    region.fill_differently()

    first = region.pages(0, 2 * MIB, MIB)

    assert [page.nbytes for page in first] == [MIB, MIB]
    assert same(first, region.pages(2, 2 * MIB, MIB))
    assert not same(first, region.pages(1, 2 * MIB, MIB))


def test_chains_share_no_key() -> None:
    keys = [key for number in range(3) for key in chain("a", number, 4)] + chain("b", 0, 4)

    assert len(set(keys)) == 16
    assert {len(key) for key in keys} == {16}
