"""Sights, reuse, history and ghosts: what policies know of a stream."""

from __future__ import annotations

import hashlib
import itertools
import random
import sys

from onggi_core.policy.classes import COUNT_MAX
from onggi_core.policy.ghosts import GHOST_BLOCKS, Ghosts
from onggi_core.policy.history import History
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.policy.reuse import Reuse
from onggi_core.policy.sights import SLOTS_MAX, SLOTS_MIN, Sights


def key(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()[:16]


def test_sights_count_each_time_a_key_is_seen() -> None:
    sights = Sights(1)
    assert [sights.see(key(1)) for _ in range(4)] == [0, 1, 2, 3]
    assert sights.see(key(2)) == 0
    assert max(sights.see(key(1)) for _ in range(50)) == COUNT_MAX


def test_sights_take_bounded_memory_and_forget() -> None:
    sights = Sights(1)
    keys = [key(number) for number in range(1 << 16)]
    for one in keys:
        sights.see(one)
    assert sum(sights.see(one) == 1 for one in keys) > 0.9 * len(keys)
    assert sys.getsizeof(sights._table) < 2 * SLOTS_MIN + 200
    assert len(Sights(1 << 40)._table) == SLOTS_MAX


def test_sights_rarely_take_one_key_for_another() -> None:
    sights = Sights(1)
    for number in range(1 << 17):
        sights.see(key(number))
    strangers = [sights.see(key(-number)) for number in range(1, 20_001)]
    assert sum(count > 0 for count in strangers) < 20


def learned(ages: list[int], waiting: list[int]) -> Reuse:
    """A class of which some came back at these ages, and others wait since so long."""
    reuse = Reuse()
    history = History(1 << 16, reuse)
    for age in ages:
        reuse.came_back(0, age)
    for number, age in enumerate(sorted(waiting, reverse=True)):
        history.see(key(number), 10_000 - age)
    for _ in range(2_000):
        history._walk(10_000)
    return reuse


def test_what_comes_back_after_a_while_is_worth_keeping_until_then_and_not_beyond() -> None:
    reuse = learned([100] * 500, [9_000] * 500)
    assert reuse.worth(0, 90) > reuse.worth(0, 0) > 10 * reuse.worth(0, 400)


def test_of_a_class_never_seen_the_older_is_worth_less() -> None:
    reuse = Reuse()
    worths = [reuse.worth(3, age) for age in (0, 10, 100, 1_000, 100_000)]
    assert worths == sorted(worths, reverse=True)
    assert worths[-1] > 0


def test_a_class_asked_for_more_often_starts_from_what_the_one_below_it_knows() -> None:
    reuse = learned([100] * 500, [9_000] * 500)
    assert reuse.worth(1, 90) > reuse.worth(1, 0) > reuse.worth(1, 400)


def test_history_numbers_are_dense_and_go_to_the_next_key_in_turn() -> None:
    history = History(3, Reuse())
    assert [history.see(key(n), n + 1) for n in range(3)] == [(0, 0, -1), (1, 0, -1), (2, 0, -1)]
    assert history.see(key(0), 9) == (0, 1, -1)
    assert history.see(key(7), 10) == (1, 0, 1), "the key that came by longest ago is forgotten"
    assert history.see(key(7), 10) == (1, 0, -1), "twice in one request is once"
    assert len(history) == 3


def stream(requests: int, seed: int = 3) -> list[list[bytes]]:
    dice = random.Random(seed)
    found = []
    for _ in range(requests):
        talk = int(dice.paretovariate(0.6)) % 50_000
        found.append([key(talk * 1_000 + depth) for depth in range(40)])
    return found


def test_ghosts_take_bounded_memory() -> None:
    """However many keys come by, and however large the tier is."""
    for blocks in (10, 1_000_000):
        ghosts = Ghosts(blocks)
        for use, keys in enumerate(stream(3_000), 1):
            ghosts.access(keys, use)
        assert len(ghosts._history) <= ghosts._history._keys_max
        for shadow in (*ghosts._shadows, *ghosts._others):
            assert len(shadow.ranking) <= shadow.blocks <= 4 * GHOST_BLOCKS


def test_the_curve_rises_with_the_size_and_meets_what_the_tier_has() -> None:
    blocks = 16_000
    ghosts = Ghosts(blocks)
    for use, keys in enumerate(stream(6_000), 1):
        ghosts.access(keys, use)
    sizes = [size for size, _ in ghosts.curve()]
    shares = [share for _, share in ghosts.curve()]
    assert sizes == sorted(sizes)
    assert abs(sizes[2] - blocks) < 1 << ghosts.shift
    assert all(a <= b + 0.02 for a, b in itertools.pairwise(shares))
    assert set(ghosts.shares()) == set(FIXED)


def test_ghosts_follow_another_policy_when_it_is_plainly_ahead() -> None:
    """LRU first, under a loop that it never hits."""
    ghosts = Ghosts(4_000, (PolicyName.LRU, PolicyName.WORTH))
    assert ghosts.best() is PolicyName.LRU
    for use in range(1, 3_000):
        ghosts.access([key(use % 500 * 100 + depth) for depth in range(20)], use)
    assert ghosts.best() is PolicyName.WORTH


def test_a_policy_alone_runs_no_ghost() -> None:
    ghosts = Ghosts(4_000, (PolicyName.LRU,))
    ghosts.access([key(1)] * 3, 1)
    assert ghosts.best() is PolicyName.LRU
    assert not ghosts.curve()
    assert not ghosts._shadows
