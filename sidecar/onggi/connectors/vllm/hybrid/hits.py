"""The longest prefix that all kinds of a model can restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from onggi.connectors.vllm.hybrid.kinds import Kind

LOOKS_MAX: Final = 32
"""Questions for one hit. Each that finds a hole moves the end behind it, some 80 us each; a prefix
with more holes than this is not worth the time."""

Look = Callable[[int, int, int], int]
"""(kind, first block, end): how many leading blocks of these are there."""


def longest_hit(kinds: Sequence[Kind], unit: int, local: int, most: int, look: Look) -> int:
    """Its end in tokens, a multiple of `unit` and at most `most`; `local`, which the engine has, if
    there is none.

    A kind that needs all tokens must have every block from `local` on, another one those that its
    layers see from the end of the hit. A hole cuts the hit off: an end further on, but not behind
    its window, would have the hole in its own.
    """
    there: dict[int, int] = {}
    end, looks = most, 0
    while looks < LOOKS_MAX:
        end -= end % unit
        if end <= local:
            return local
        for number, kind in enumerate(kinds):
            first, last = span(kind, local, end)
            if first >= last or (kind.needs_all and there.get(number, 0) >= last):
                continue
            looks += 1
            there[number] = first + look(number, first, last)
            if there[number] < last:
                end = there[number] * kind.block_tokens
                break
        else:
            return end
    return local


def span(kind: Kind, local: int, end: int) -> tuple[int, int]:
    """Blocks to load, the first one and the one behind the last, for a hit that ends at `end`, of
    which the engine has `local` tokens."""
    return max(kind.first_needed(end), local // kind.block_tokens), end // kind.block_tokens
