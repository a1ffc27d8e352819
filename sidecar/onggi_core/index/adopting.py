"""A million blocks of an earlier life at once: work a column at a time, not a block at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import eq

from onggi_core.identity import ROOT
from onggi_core.index.blocks import DEPTH_MAX, Blocks
from onggi_core.index.ids import NOWHERE, as_run


class TwiceError(Exception):
    """A key or a place comes twice."""


def latest_rows(keys: Sequence[bytes], places: Sequence[int]) -> list[int]:
    """The rows that hold where the later one counts: one a key and one a place."""
    by_key = dict(zip(keys, range(len(keys)), strict=True))
    by_place = {places[row]: row for row in sorted(by_key.values())}
    return sorted(by_place.values())


def add_adopted(
    blocks: Blocks, space: int, keys: Sequence[bytes], parents: Sequence[bytes]
) -> Sequence[int]:
    """Makes blocks of keys that no tier holds, in the order of the rows. A parent may be a row,
    earlier or later, or none: then it is a name that is waited for. Raises TwiceError, with nothing
    made, where a key comes twice."""
    ids = blocks.ids[space]
    if ids:
        rows = zip(keys, parents, strict=True)
        return as_run([blocks.new(space, key, parent) for key, parent in rows])
    made = blocks.fresh_numbers(len(keys))
    begin, end = made.start, made.stop
    ids.update(zip(keys, made, strict=True))
    if len(ids) < len(keys):
        ids.clear()
        blocks.give_back_numbers(made)
        raise TwiceError
    blocks.keys[begin:end] = keys
    blocks.space[begin:end] = array("H", [space]) * len(keys)
    follows = bytes(map(eq, parents, chain((ROOT,), keys)))
    above = array("i", range(begin - 1, end - 1))
    for row in _zeros(follows):
        key = parents[row]
        above[row] = NOWHERE if key == ROOT else blocks.name(space, key)
    blocks.parent[begin:end] = above
    _count(blocks, made, above, follows)
    return made


def _zeros(follows: bytes) -> Iterator[int]:
    """The rows that do not follow the one before them. The first never does."""
    row = 0
    while row >= 0:
        yield row
        row = follows.find(0, row + 1)


def _count(blocks: Blocks, made: range, above: array[int], follows: bytes) -> None:
    """Children and depth, rows in order: a parent that comes later counts as a first block.

    Most rows follow the row before them; the others alone are looked at one by one. Every ring has
    a row that follows a later one, or itself, and is cut there.
    """
    begin, end = made.start, made.stop
    kids = blocks.kids
    kids[begin:end] = array("i", (*follows[1:], 0))
    for row in _zeros(follows):
        behind = follows.find(0, row + 1)
        parent, block = above[row], begin + row
        depth = 0
        if parent != NOWHERE:
            kids[parent] += 1
            depth = 1 if parent >= block else blocks.depth[parent] + 1
            if begin <= parent < end and parent >= block and blocks.leads_to(parent, block):
                blocks.parent[block] = NOWHERE
                kids[parent] -= 1
        _fill_depth(blocks, block, depth, (behind if behind >= 0 else len(follows)) - row)


def _fill_depth(blocks: Blocks, first: int, depth: int, count: int) -> None:
    """A chain of `count` blocks, the first one with `depth` before it."""
    depths = range(depth, depth + count)
    blocks.depth[first : first + count] = array(
        "H", depths if depth + count <= DEPTH_MAX else [min(one, DEPTH_MAX) for one in depths]
    )
