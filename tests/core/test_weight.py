"""What the index says that it takes, against what it took."""

from __future__ import annotations

import tracemalloc
from array import array

from onggi_core.index.blocks import Blocks
from onggi_core.index.weight import INT_BYTES, weight


class Shelf:
    __slots__ = ("column", "nothing", "numbers", "rows")

    def __init__(self) -> None:
        self.column = array("q", [0]) * 1000
        self.numbers = {number: number for number in range(100)}
        self.rows = [[0] * 10, [0] * 20]


class Room:
    def __init__(self, shelf: Shelf) -> None:
        self.same_column = shelf.column
        self.name = "a room"


def test_columns_tables_and_rows_are_counted_once_whoever_has_them() -> None:
    shelf = Shelf()
    alone = weight(shelf)
    least = 8 * 1000 + (8 + INT_BYTES) * 100 + (8 + INT_BYTES) * 30
    assert least <= alone <= 2 * least
    assert weight(shelf, Room(shelf), shelf) == alone
    assert weight() == 0


def test_an_index_says_within_a_fifth_what_it_took() -> None:
    tracemalloc.start()
    try:
        begun = tracemalloc.get_traced_memory()[0]
        blocks = Blocks()
        blocks.table_for(0)
        empty = weight(blocks, *blocks.tables, blocks.host, blocks.disk)
        for chain in range(200):
            keys = [(chain << 32 | number).to_bytes(16, "big") for number in range(1, 65)]
            assert blocks.new_chain(0, [key[::-1] for key in keys], keys[0]) is not None
        took = tracemalloc.get_traced_memory()[0] - begun
    finally:
        tracemalloc.stop()
    said = weight(blocks, *blocks.tables, blocks.host, blocks.disk) - empty
    assert 0.8 * took <= said <= 1.25 * took
