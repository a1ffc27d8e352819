"""What the index knows of blocks: names that come and go, rings, chains and a million rows."""

from __future__ import annotations

import random
from array import array

from onggi_core.identity import ROOT
from onggi_core.index.adopting import add_adopted, latest_rows
from onggi_core.index.blocks import Blocks
from onggi_core.index.digests import Digests
from onggi_core.index.ids import NOWHERE, as_run
from onggi_core.index.keytable import NO_SPACE
from onggi_core.page import PageState
from onggi_core.policy.chains import ChainRanking, Past
from onggi_core.policy.choosers import LeastRecent


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def index() -> Blocks:
    made = Blocks()
    made.table_for(0)
    return made


def hold(blocks: Blocks, *which: int) -> None:
    """The host tier has a page of each."""
    for block in which:
        blocks.host.states[block] = PageState.SEALED


def test_numbers_in_a_row_are_a_range_and_others_are_not() -> None:
    assert as_run([4, 5, 6]) == range(4, 7)
    assert as_run([4, 6, 5, 7]) == [4, 6, 5, 7]
    assert as_run([]) == []


def test_a_chain_knows_its_parents_its_depth_and_its_children() -> None:
    made = index()
    first = made.new_chain(0, [key(1), key(2), key(3)], ROOT)
    hold(made, *first)
    second = made.new_chain(0, [key(4), key(5)], key(3))
    assert [made.parent_key(block) for block in (*first, *second)] == [
        ROOT,
        *(key(number) for number in range(1, 5)),
    ]
    assert [made.depth[block] for block in (*first, *second)] == [0, 1, 2, 3, 4]
    assert [made.kids[block] for block in (*first, *second)] == [1, 1, 1, 1, 0]


def test_numbers_of_a_chain_that_went_from_its_end_are_a_row_again() -> None:
    made = index()
    chain = made.new_chain(0, [key(number) for number in range(1, 6)], ROOT)
    made.new_chain(0, [key(99)], ROOT)
    for block in reversed(chain):
        made.forget_if_nowhere(block)
    again = made.new_chain(0, [key(number) for number in range(11, 16)], ROOT)
    assert again == chain


def test_a_parent_that_is_not_known_is_a_name_until_its_last_child_goes() -> None:
    made = index()
    child = made.new(0, key(2), key(1))
    hold(made, child)
    assert len(made) == 2
    assert made.parent_key(child) == key(1)
    parent = made.new(0, key(1), ROOT)
    assert parent == made.parent[child]
    made.host.states[child] = PageState.FREE
    made.forget_if_nowhere(child)
    assert len(made) == 0
    assert not made.tables[0]
    assert set(made.space) == {NO_SPACE}


def test_a_ring_is_cut_where_it_would_close() -> None:
    made = index()
    alone = made.new(0, key(1), key(1))
    hold(made, alone)
    assert made.parent[alone] == NOWHERE
    two = made.new(0, key(2), key(3))
    hold(made, two)
    three = made.new(0, key(3), key(2))
    hold(made, three)
    assert (made.parent[two], made.parent[three]) == (three, NOWHERE)


def test_of_rows_that_contradict_each_other_the_last_holds() -> None:
    keys = [key(1), key(2), key(1), key(3)]
    assert latest_rows(keys, [0, 4096, 8192, 12288]) == [1, 2, 3]
    assert latest_rows(keys[:2], [4096, 4096]) == [1]


def test_adopted_rows_may_come_in_any_order_and_in_rings() -> None:
    made = index()
    keys = [key(number) for number in range(1, 7)]
    parents = [key(2), ROOT, key(9), key(5), key(4), key(6)]
    blocks = add_adopted(made, 0, Digests.of("keys", keys), Digests.of("parents", parents)).blocks
    known = dict(zip(blocks, keys, strict=True))
    assert [made.parent_key(block) for block in blocks[:3]] == [key(2), ROOT, key(9)]
    for block in blocks:
        line = [block]
        while line[-1] != NOWHERE:
            line.append(made.parent[line[-1]])
            assert len(line) <= len(known) + 2, "a ring was left"
    assert made.parent_key(blocks[5]) == ROOT


def test_a_chain_taken_at_once_ranks_as_its_blocks_one_by_one() -> None:
    dice = random.Random(7)
    for _ in range(200):
        at_once, each = ChainRanking(LeastRecent()), ChainRanking(LeastRecent())
        here: list[int] = []
        for use in range(1, 12):
            begin, count = len(here), dice.randrange(1, 6)
            blocks = range(begin, begin + count)
            parents = [dice.choice([NOWHERE, *here, *blocks[:at]]) for at in range(count)]
            step, past = 1, Past((), b"")
            if dice.randrange(2):
                parents[1:], step = blocks[:-1], 0
                at_once.insert_chain(blocks, parents[0], 0, use * 10)
            else:
                kids = array("i", [parents.count(block) for block in blocks])
                heads = [
                    block for block, one in zip(blocks, parents, strict=True) if one != block - 1
                ]
                heads = sorted({begin, *heads})
                above = array("i", parents)
                past = Past(range(use * 10, use * 10 + count), bytes([dice.randrange(4)]) * count)
                at_once.insert_range(blocks, heads, above, kids, 0, past)
            for at, block in enumerate(blocks):
                each.insert(block, parents[at], 0, use * 10 + at * step)
                each.recall(block, past.counts[at] if step else 0)
            here += blocks
            assert at_once.counts_of(blocks) == each.counts_of(list(blocks))
        while len(each):
            block = each.coldest(0)
            assert at_once.coldest(0) == block
            each.remove(block)
            at_once.remove(block)
        assert at_once.coldest(0) is None
