"""A million blocks of an earlier life at once: work a column at a time, not a block at a time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import eq

from onggi_core.identity import ROOT
from onggi_core.index.blocks import DEPTH_MAX, Blocks
from onggi_core.index.ids import NOWHERE, as_run


class TwiceError(Exception):
    """A key or a place comes twice."""


def latest_rows(keys: Sequence[bytes], places: Sequence[int]) -> list[int]:
    """The rows that hold, of a journal whose later word counts: one a key and one a place."""
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
    found: list[int | None] = list(map(ids.get, parents))
    above = _all_named(blocks, space, found, parents)
    blocks.parent[begin:end] = array("i", above)
    _count(blocks, made, above)
    return made


def _all_named(
    blocks: Blocks, space: int, found: list[int | None], parents: Sequence[bytes]
) -> list[int]:
    """Numbers of the parents, with those made that are known by their children alone."""
    row = -1
    for _ in range(found.count(None)):
        row = found.index(None, row + 1)
        key = parents[row]
        found[row] = NOWHERE if key == ROOT else blocks.name(space, key)
    return found  # type: ignore[return-value]  # no None is left


def _count(blocks: Blocks, made: range, above: list[int]) -> None:
    """Children and depth, rows in order: a parent that comes later counts as a first block.

    Most rows follow the row before them; the others alone are looked at one by one. Every ring has
    a row that follows a later one, or itself, and is cut there.
    """
    begin, end = made.start, made.stop
    follows = bytes(map(eq, above, range(begin - 1, end - 1)))  # what the first follows is no row
    kids = blocks.kids
    kids[begin:end] = array("i", [*follows[1:], 0])
    row = 0
    while row >= 0:
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
        row = behind


def _fill_depth(blocks: Blocks, first: int, depth: int, count: int) -> None:
    """A chain of `count` blocks, the first one with `depth` before it."""
    depths = range(depth, depth + count)
    blocks.depth[first : first + count] = array(
        "H", depths if depth + count <= DEPTH_MAX else [min(one, DEPTH_MAX) for one in depths]
    )
