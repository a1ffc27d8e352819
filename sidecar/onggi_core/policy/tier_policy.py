"""A tier's policy: its ranking, what it learned from the stream, and how it admits.

How an engine uses it: `asked` once for each request's chain of keys; `ranking.run` or an index of
its own for what is here, then `ranking.hit` on the last block of the run. For each block that is
stored and not here, `seen` once, and its answer goes along as `count`. Where there is room the
block goes in (`ranking.insert`). Where there is none, `ranking.rival` names the block to give up
for it, or None: then it is not admitted, and neither is anything after it in its chain.
"""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.policy.ghosts import Ghosts
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.policy.ranking import Ranking
from onggi_core.policy.sights import Sights


class TierPolicy:
    def __init__(self, blocks: int, name: PolicyName = PolicyName.ADAPTIVE) -> None:
        """blocks: what the tier holds."""
        self.name = name
        self.ghosts = Ghosts(blocks, FIXED if name is PolicyName.ADAPTIVE else (name,))
        self._sights = Sights(blocks)
        self.ranking = Ranking(self.ghosts.chooser())

    @property
    def following(self) -> PolicyName:
        """The policy in force."""
        return self.ghosts.best()

    def asked(self, keys: Sequence[bytes], use: int) -> None:
        """A request asked for this chain; whether it is here does not matter."""
        self.ghosts.access(keys, use)
        self.ranking.chooser = self.ghosts.chooser()

    def seen(self, key: bytes) -> int:
        """How often a block that is not here was seen before; from now on once more."""
        return self._sights.see(key)
