"""Blocks as numbers: a chain that came at once has numbers in a row, and a row is a slice."""

from __future__ import annotations

from collections.abc import Sequence

NOWHERE = -1
"""No block: the parent of a first one, and what a page without a block belongs to."""


def as_run(blocks: Sequence[int]) -> Sequence[int]:
    """The same blocks as a range where their numbers follow each other: then every column is
    read and changed by one slice, a tenth of the time of a loop."""
    if type(blocks) is range or not blocks:
        return blocks
    first, count = blocks[0], len(blocks)
    if blocks[-1] - first == count - 1 and blocks == list(range(first, first + count)):
        return range(first, first + count)
    return blocks
