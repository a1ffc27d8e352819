"""Keys to blocks: against a dict, with keys that share bits, windows and numbers."""

from __future__ import annotations

import random

import pytest

from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT
from onggi_core.index.blocks import Blocks
from onggi_core.index.digests import Digests
from onggi_core.index.ids import NOWHERE
from onggi_core.index.keytable import BITS
from onggi_core.index.places import Places, rows_of
from onggi_core.page import PageState
from onggi_core.slab import Slab

PART_BYTES = BITS.bit_length() // 8


def index(spaces: int = 1) -> Blocks:
    made = Blocks()
    for number in range(spaces):
        made.table_for(number)
    return made


@pytest.mark.parametrize("different", [300, 8, 1])
def test_it_answers_as_a_dict_does_however_many_keys_share_their_bits(different: int) -> None:
    dice = random.Random(different)
    made, right = index(), dict[bytes, int]()
    parts = [dice.randbytes(PART_BYTES) for _ in range(different)]
    keys = [parts[n % different] + dice.randbytes(16 - PART_BYTES) for n in range(300)]
    for _ in range(1500):
        if right and dice.random() < 0.45:
            key = dice.choice(list(right))
            made.forget_if_nowhere(right.pop(key))
        else:
            some = dice.sample(keys, dice.randrange(1, 6))
            blocks = made.new_chain(0, some, ROOT)
            assert (blocks is None) == any(key in right for key in some)
            for block in blocks or ():  # no chain, so that each of them can go by itself
                made.parent[block] = NOWHERE
                made.kids[block] = 0
            right |= dict(zip(some, blocks or (), strict=False))
        assert len(made.tables[0]) == len(right)
    assert [made.tables[0].find(key) for key in keys] == [right.get(key) for key in keys]
    for key, block in right.items():
        assert made.key(block) == key


@pytest.mark.parametrize("part", [b"", bytes(PART_BYTES)])
def test_a_key_that_comes_twice_in_a_chain_leaves_nothing(part: bytes) -> None:
    made = index()
    one, two, above = (part + bytes([n]) * (16 - len(part)) for n in (1, 2, 3))
    assert made.new_chain(0, [one, two, one], above) is None
    assert made.new_chain(0, [one, above], above) is None
    assert not made.tables[0]
    assert len(made) == 0
    assert made.new_chain(0, [one, two], above) is not None


def test_runs_of_numbers_and_scattered_ones_are_known_in_the_order_asked_for() -> None:
    dice = random.Random(3)
    made, chains = index(), [[dice.randbytes(16) for _ in range(200)] for _ in range(3)]
    numbers = dict[bytes, int]()
    for begin in range(0, 200, 10):  # chains that grow by turns
        for chain in chains:
            some = chain[begin : begin + 10]
            blocks = made.new_chain(0, some, chain[begin - 1] if begin else ROOT)
            assert blocks is not None
            numbers |= dict(zip(some, blocks, strict=True))
    known = made.tables[0].known
    for chain in chains:
        assert list(known(chain)) == [numbers[key] for key in chain]
        assert list(known(chain[5:77])) == [numbers[key] for key in chain[5:77]]
    assert known(chains[0][20:30]) == range(numbers[chains[0][20]], numbers[chains[0][29]] + 1)
    mixed = [*chains[0][:15], dice.randbytes(16), *chains[0][15:]]
    assert list(known(mixed)) == [numbers[key] for key in mixed[:15]]
    assert list(known([dice.randbytes(16)])) == []
    assert list(known([])) == []


def test_a_number_that_another_space_took_over_is_not_taken_for_the_same_key() -> None:
    made = index(spaces=2)
    keys = [bytes([n]) * 16 for n in range(1, 5)]
    first = made.new_chain(0, keys, ROOT)
    assert first == range(4)
    made.host.states[:2] = bytes([PageState.SEALED] * 2)
    made.forget_if_nowhere(3)
    again = made.new_chain(1, keys[2:], ROOT)
    assert again == range(2, 4), "the numbers that were given back"
    assert list(made.tables[0].known(keys)) == [0, 1]
    assert [made.tables[0].find(key) for key in keys] == [0, 1, None, None]
    assert [made.tables[1].find(key) for key in keys] == [None, None, 2, 3]


def test_digests_of_another_length_are_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="parents"):
        Digests.of("parents", [b"1" * 16, b"2" * 15, b"3" * 17])
    assert list(Digests.of("keys", [b"1" * 16] * 130)) == [b"1" * 16] * 130


def test_places_are_a_sequence_of_rows() -> None:
    places, other = Places(4096), Places(4096)
    places.add(0, 3)
    places.add(3 * 4096, 2)
    other.add(40960, 2)
    other.add(0, 1)
    places.take(other)
    right = [0, 4096, 8192, 12288, 16384, 40960, 45056, 0]
    assert list(places) == right
    assert [places[at] for at in range(-8, 8)] == right * 2
    assert places[2:6] == right[2:6]
    assert list(rows_of(4096, places)) == list(rows_of(4096, right)) == [(0, 5), (5, 7), (7, 8)]
    assert list(rows_of(4096, [])) == list(rows_of(4096, Places(4096))) == []


def test_rows_of_places_are_adopted_region_by_region() -> None:
    places, slab = Places(4096), Slab(16384)
    for number in range(3):
        slab.add_region(number)
    places.add(4096, 6)
    assert slab.adopt(4096, places, range(10, 16))
    assert [slab.owner(place) for place in places] == list(range(10, 16))
