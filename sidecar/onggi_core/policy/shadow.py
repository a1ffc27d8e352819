"""A prefix cache of names alone: what a tier under some policy would hold. No bytes, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.index.ids import NOWHERE
from onggi_core.policy.choosers import Chooser
from onggi_core.policy.ranking import Ranking

_GROUP = 0
"""All blocks of a shadow are of one size."""


class Shadow:
    def __init__(self, blocks: int, chooser: Chooser) -> None:
        self.blocks = blocks
        self.ranking = Ranking(chooser)

    def ask(self, chain: Sequence[int], counts: Sequence[int], use: int) -> int:
        """A request for a chain of blocks: how many of the first were here. Then the others come
        in, as far as they are admitted; counts: how often each was asked for before."""
        run = self.ranking.run(chain)
        fill(self.ranking, self.blocks, chain, run, counts, use)
        return run

    def drop(self, block: int) -> None:
        """The block is known no more."""
        if block in self.ranking:
            self.ranking.remove(block)


def fill(
    ranking: Ranking,
    room: int,
    chain: Sequence[int],
    run: int,
    counts: Sequence[int],
    use: int,
) -> None:
    """What a request does to a tier of `room` blocks that has the first `run` of its chain: they
    were hit, and the others come in as far as they are admitted."""
    parent = NOWHERE
    if run:
        parent = chain[run - 1]
        ranking.hit(parent, use)
    for position in range(run, len(chain)):
        block, count = chain[position], counts[position]
        if len(ranking) >= room and block not in ranking:
            rival = ranking.rival(_GROUP, count, before=use)
            if rival is None:
                return  # and what comes after it is worth nothing without it
            ranking.remove(rival)
        ranking.insert(block, parent, _GROUP, use, count)
        parent = block
