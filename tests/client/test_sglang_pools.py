"""Models with several pools: how far a prefix can be restored, and pages of each of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang_stand_ins import hashes

from onggi.connectors.sglang.hits import LOOKS_MAX, STOPS_MAX, trailing_stops


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(present=st.lists(st.booleans(), max_size=24), window=st.integers(1, 5))
def test_stops_are_the_ends_of_whole_windows(present: list[bool], window: int) -> None:
    """As the interface says: the last `window` pages exist, or all of a shorter prefix's."""
    whole = [end for end in range(1, len(present) + 1) if all(present[max(0, end - window) : end])]
    assert trailing_stops(present.__getitem__, len(present), window) == whole[-STOPS_MAX:]


def test_a_page_is_asked_for_once_and_only_so_many_are() -> None:
    asked: list[int] = []

    def exists(page: int) -> bool:
        asked.append(page)
        return False

    assert trailing_stops(exists, 10_000, 2) == []
    assert asked == list(range(9_999, 9_999 - LOOKS_MAX, -1))


def transfer(rank: Any, name: str, keys: Any, pages: Any = None, trailing: bool = False) -> Any:
    engine = rank.engine
    policy = engine.Policy.TRAILING_PAGES if trailing else engine.Policy.ALL_PAGES
    return engine.Transfer(
        name=engine.Name(name),
        keys=list(keys),
        host_indices=None if pages is None else rank.at(pages, rank.others.get(name)),
        hit_policy=policy,
    )


@pytest.fixture
def hybrid(make_rank: Any) -> Any:
    """Whole attention, an indexer with a page for each of its pages, and a window's states."""
    return make_rank(others=[("indexer", "mha"), ("mamba", "mamba")])


def test_pools_keep_pages_of_their_own_under_the_same_keys(hybrid: Any) -> None:
    keys = hashes(3)
    wanted = {
        name: [hybrid.write(page, 100 * number + page, hybrid.others[name]) for page in range(3)]
        for number, name in enumerate(hybrid.others, 1)
    }
    given_ = [transfer(hybrid, name, keys, range(3)) for name in hybrid.others]
    kept = hybrid.storage.batch_set_v2(given_)
    assert kept == {name: [True] * 3 for name in hybrid.others}
    assert hybrid.storage.batch_exists(keys) == 0
    asked = [transfer(hybrid, name, keys, [9, 8, 7]) for name in hybrid.others]
    assert hybrid.storage.batch_get_v2(asked) == {name: [True] * 3 for name in hybrid.others}
    for name, pool in hybrid.others.items():
        assert [hybrid.read(page, pool) for page in (9, 8, 7)] == wanted[name]
    assert hybrid.storage.faults.total == 0


def test_a_pool_that_needs_every_page_cuts_the_prefix(hybrid: Any) -> None:
    keys = hashes(6)
    hybrid.backup(keys[:5], range(5))
    hybrid.storage.batch_set_v2([transfer(hybrid, "indexer", keys[:3], range(3))])
    found = hybrid.storage.batch_exists_v2(keys, [transfer(hybrid, "indexer", [])])
    assert (found.kv_hit_pages, found.restorable_prefix_pages) == (3, [1, 2, 3])
    assert found.extra_pool_hit_pages == {"kv": 5, "indexer": 3}


def test_a_window_ends_a_prefix_only_where_it_is_whole(hybrid: Any) -> None:
    keys = hashes(6)
    hybrid.backup(keys, range(6))
    for page in (1, 3):
        hybrid.storage.batch_set_v2(
            [transfer(hybrid, "mamba", keys[page : page + 1], [page], True)]
        )
    asked = [transfer(hybrid, "mamba", keys[-1:], trailing=True)]
    found = hybrid.storage.batch_exists_v2(keys, asked)
    assert (found.kv_hit_pages, found.restorable_prefix_pages) == (4, [2, 4])
    assert found.extra_pool_hit_pages == {"kv": 6, "mamba": 4}
    shorter = hybrid.storage.batch_exists_v2(keys[:3], asked)
    assert (shorter.kv_hit_pages, shorter.restorable_prefix_pages) == (2, [2])


def test_both_rules_together_and_nothing_where_they_do_not_meet(hybrid: Any) -> None:
    keys = hashes(6)
    hybrid.backup(keys, range(6))
    hybrid.storage.batch_set_v2([transfer(hybrid, "indexer", keys[:3], range(3))])
    hybrid.storage.batch_set_v2([transfer(hybrid, "mamba", keys[4:5], [4], trailing=True)])
    asked = [
        transfer(hybrid, "indexer", []),
        transfer(hybrid, "mamba", keys[-1:], trailing=True),
    ]
    assert hybrid.storage.batch_exists_v2(keys, asked).kv_hit_pages == 0
    hybrid.storage.batch_set_v2([transfer(hybrid, "mamba", keys[1:2], [1], trailing=True)])
    assert hybrid.storage.batch_exists_v2(keys, asked).restorable_prefix_pages == [2]
    assert hybrid.storage.batch_exists_v2(hashes(2, seed=8), asked).kv_hit_pages == 0


def test_a_pool_that_nobody_showed_holds_nothing(hybrid: Any) -> None:
    keys = hashes(2)
    hybrid.backup(keys, range(2))
    unknown = transfer(hybrid, "swa", keys, range(2))
    assert hybrid.storage.batch_exists_v2(keys, [unknown]).kv_hit_pages == 0
    assert hybrid.storage.batch_get_v2([unknown]) == {"swa": [False, False]}
    assert hybrid.storage.batch_set_v2([unknown]) == {"swa": [False, False]}
    assert hybrid.storage.batch_exists_v2(keys).kv_hit_pages == 2


def test_groups_of_blocks_are_not_kept_and_hold_back_no_hit(hybrid: Any) -> None:
    keys = hashes(2)
    hybrid.backup(keys, range(2))
    groups = transfer(hybrid, "indexer", keys)
    groups.hit_policy = hybrid.engine.Policy.BLOCK_GROUPS
    found = hybrid.storage.batch_exists_v2(keys, [groups])
    assert (found.kv_hit_pages, found.extra_pool_hit_pages) == (2, {"kv": 2})


def test_one_pools_fault_is_no_other_pools_miss(hybrid: Any) -> None:
    keys = hashes(2)
    broken = transfer(hybrid, "mamba", keys, [0])
    fine = transfer(hybrid, "indexer", keys, [0, 1])
    assert hybrid.storage.batch_set_v2([broken, fine]) == {
        "mamba": [False, False],
        "indexer": [True, True],
    }
    assert hybrid.storage.faults.by_call == {"pool mamba": 1}


def test_states_of_a_latents_model_are_each_ranks_own(make_rank: Any) -> None:
    """All ranks hold the latent alike, and each a part of the states beside it."""
    ranks = [make_rank(kind="mla", tp=(n, 2), others=[("mamba", "mamba")]) for n in range(2)]
    keys = hashes(1)
    wanted = [rank.write(0, n, rank.others["mamba"]) for n, rank in enumerate(ranks)]
    for rank in ranks:
        assert rank.storage.batch_set_v2([transfer(rank, "mamba", keys, [0], True)]) == {
            "mamba": [True]
        }
    for rank, bytes_ in zip(ranks, wanted, strict=True):
        rank.storage.batch_get_v2([transfer(rank, "mamba", keys, [5], True)])
        assert rank.read(5, rank.others["mamba"]) == bytes_


def test_an_anchor_without_memory_is_carried_by_its_pools(make_rank: Any) -> None:
    rank = make_rank(others=[("indexer", "mha")])
    rank.pool.kv_buffer = None
    rank.storage.register_mem_pool_host(rank.pool)
    keys = hashes(4)
    assert rank.storage.batch_set_v1(keys, rank.at(range(4))) == [True] * 4
    rank.storage.batch_set_v2([transfer(rank, "indexer", keys[:2], range(2))])
    asked = [transfer(rank, "indexer", [])]
    assert rank.storage.batch_exists_v2(keys, asked).kv_hit_pages == 2
    assert rank.storage.batch_get_v1(keys[:2], rank.at([0, 1])) == [True, True]
