"""A million blocks of an earlier life at once: work a column at a time, not a block at a time."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne
from typing import Final

from onggi_core.identity import DIGEST_BYTES, ROOT
from onggi_core.index.blocks import DEPTH_MAX, Blocks
from onggi_core.index.counting import in_a_row
from onggi_core.index.digests import Digests, common, cut
from onggi_core.index.ids import NOWHERE

_PART_BYTES: Final = 64 * DIGEST_BYTES
"""Rows compared at once: most follow each other."""
_FEW: Final = 3
"""Heads of such a part that are looked for one by one; where there are more, all rows are."""


class TwiceError(Exception):
    """A key or a place comes twice."""


def latest_rows(keys: Sequence[bytes], places: Sequence[int]) -> list[int]:
    """The rows that hold where the later one counts: one a key and one a place."""
    by_key = dict(zip(keys, range(len(keys)), strict=True))
    by_place = {places[row]: row for row in sorted(by_key.values())}
    return sorted(by_place.values())


@dataclass(frozen=True, slots=True)
class Made:
    """Blocks that were adopted. heads: where they are a range, those that do not follow the number
    before theirs, in order."""

    blocks: Sequence[int]
    heads: Sequence[int] = ()


def add_adopted(blocks: Blocks, space: int, keys: Digests, parents: Digests) -> Made:
    """Makes blocks of keys that no tier holds, in the order of the rows. A parent may be a row,
    earlier or later, or none: then it is a name that is waited for. Raises TwiceError, with nothing
    made, where a key comes twice."""
    table = blocks.tables[space]
    if table:
        rows = zip(keys, parents, strict=True)
        return Made([blocks.new(space, key, parent) for key, parent in rows])
    made = blocks.fresh_numbers(len(keys))
    begin, end = made.start, made.stop
    blocks.keys[begin * DIGEST_BYTES : end * DIGEST_BYTES] = keys.raw
    blocks.space[begin:end] = array("H", [space]) * len(keys)
    if not table.add(keys, made):
        blocks.give_back_numbers(made)
        raise TwiceError
    heads = [begin + row for row in _heads(keys.raw, parents.raw)]
    nameless = table.find(ROOT)  # no hash: what seems to follow it follows nothing
    if nameless is not None and nameless + 1 < end and nameless + 1 not in heads:
        insort(heads, nameless + 1)
    above = array("i", (NOWHERE,)) + in_a_row(begin, len(made) - 1)
    for head in heads:
        key = parents[head - begin]
        if key == ROOT:
            blocks.beginnings.add(head, blocks.keys)
        above[head - begin] = NOWHERE if key == ROOT else blocks.name(space, key)
    blocks.parent[begin:end] = above
    _count(blocks, made, heads)
    return Made(made, heads)


def _heads(keys: bytes | bytearray, parents: bytes | bytearray) -> list[int]:
    """The rows whose parent is not the row before them: the first one, and where chains begin."""
    heads = [0]
    for begin in range(DIGEST_BYTES, len(keys), _PART_BYTES):
        above = parents[begin : begin + _PART_BYTES]
        before = keys[begin - DIGEST_BYTES : begin - DIGEST_BYTES + len(above)]
        if before == above:
            continue
        row, end = 0, len(above) // DIGEST_BYTES
        for _ in range(_FEW):
            row += common(before[row * DIGEST_BYTES :], above[row * DIGEST_BYTES :])
            if row == end:
                break
            heads.append(begin // DIGEST_BYTES + row)
            row += 1
        else:
            differ = map(ne, cut(before[row * DIGEST_BYTES :]), cut(above[row * DIGEST_BYTES :]))
            heads += compress(range(begin // DIGEST_BYTES + row, len(keys)), differ)
    return heads


def _count(blocks: Blocks, made: range, heads: list[int]) -> None:
    """Children and depth, rows in order: a parent that comes later counts as a first block.

    Most rows follow the row before them; the heads alone are looked at one by one. Every ring has
    a row that follows a later one, or itself, and is cut there.
    """
    begin, end = made.start, made.stop
    kids = blocks.kids
    depths = array("H", in_a_row(0, DEPTH_MAX + 1))
    kids[begin:end] = array("i", [1]) * len(made)
    ends = [*heads[1:], end]
    for behind in ends:
        kids[behind - 1] = 0
    for head, behind in zip(heads, ends, strict=True):
        parent = blocks.parent[head]
        depth = 0
        if parent != NOWHERE:
            kids[parent] += 1
            depth = 1 if parent >= head else min(blocks.depth[parent] + 1, DEPTH_MAX)
            if begin <= parent < end and parent >= head and blocks.leads_to(parent, head):
                blocks.parent[head] = NOWHERE
                blocks.beginnings.add(head, blocks.keys)
                kids[parent] -= 1
        row = depths[depth : depth + behind - head]
        row.extend(depths[-1:] * (behind - head - len(row)))
        blocks.depth[head:behind] = row
