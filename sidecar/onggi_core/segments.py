"""Segments: a prompt cut into runs of blocks that grow with distance from its start.

The first tokens of a prompt are shared most and cut finest; what lies far out is used whole or not
at all. A segment is laid out and moved as a unit, and each can be loaded by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from onggi_core.errors import BadRequest

SEGMENT_TOKENS: Final = (1024, 2048, 4096, 8192, 65536, 131072)
"""Where segments end, in tokens from the start. Beyond the last one they go on at the last length,
which is that of the last two ends."""


class Segments:
    """The cut of one block size. ends: in tokens, rising; a block belongs to the segment that its
    first token lies in. Raises BadRequest."""

    __slots__ = ("_ends", "_step")

    def __init__(self, block_tokens: int, ends: Sequence[int] = SEGMENT_TOKENS) -> None:
        if not ends or list(ends) != sorted(set(ends)) or ends[0] < 1:
            raise BadRequest("segments", tuple(ends), "use rising numbers of tokens, from 1")
        blocks = [-(-end // block_tokens) for end in ends]
        self._ends = sorted(set(blocks))
        last = ends[-1] - (ends[-2] if len(ends) > 1 else 0)
        self._step = max(1, last // block_tokens)

    def end_after(self, depth: int) -> int:
        """The first block behind the segment of block `depth` (from 0)."""
        ends = self._ends
        if depth < ends[-1]:
            return ends[bisect_right(ends, depth)]
        beyond = depth - ends[-1]
        return ends[-1] + (beyond // self._step + 1) * self._step

    def pieces(self, depth: int, count: int) -> list[int]:
        """How many of `count` blocks from `depth` on lie in each segment they touch."""
        lengths = []
        while count > 0:
            length = min(count, self.end_after(depth) - depth)
            lengths.append(length)
            depth += length
            count -= length
        return lengths
