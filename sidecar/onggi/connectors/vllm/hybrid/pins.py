"""Blocks of the engine that saves still read: counted as in use until all ranks have read them.

A block that leaves its window, or whose request has ended, is free for the next step. Waiting for
the save there would hold up the step, dropping it would lose most of a long prompt; so the engine's
own reference counts keep the block, as for a request that shares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Pins:
    """Of the scheduler; not thread-safe."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._held: dict[int, list[Any]] = {}

    def bind(self, pool: Any) -> None:
        """pool: vLLM's BlockPool."""
        self._pool = pool

    @property
    def bound(self) -> bool:
        return self._pool is not None

    @property
    def any(self) -> bool:
        return bool(self._held)

    @property
    def nobody(self) -> int:
        """The number that stands in a block table where a block has been given up."""
        return int(self._pool.null_block.block_id)

    def hold(self, job: int, block_ids: Sequence[int]) -> None:
        blocks = [self._pool.blocks[block] for block in block_ids]
        self._pool.touch(blocks)
        self._held[job] = blocks

    def let_go(self, job: int) -> None:
        """The last block first, as vLLM frees those of a request."""
        blocks = self._held.pop(job, None)
        if blocks:
            self._pool.free_blocks(reversed(blocks))
