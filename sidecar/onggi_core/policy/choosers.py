"""Choosers: which class of leaves gives up its head, and whether a new block is worth that.

A ranking keeps the leaves of each class in the order of their last use (policy.ranking), so all a
policy has to say is a choice between eight heads. Each class here is one policy; none knows a key,
and any of them may take over a ranking at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from onggi_core.policy.classes import PROVEN
from onggi_core.policy.reuse import Reuse

BLOCK_BITS: Final = 32
"""A head is one int, last use above block: half the size of a tuple, and compared faster."""

EMPTY: Final = 1 << 96
"""The head of a class that has no leaf to give: later than any use."""


class Standing(Protocol):
    """What a chooser may know of the ranking it chooses for."""

    now: int
    """The latest use there was."""
    proven: int
    """Blocks that were asked for again at least once (classes.PROVEN)."""
    pace: float
    """Uses that go by from one prompt to the next: what was learned is in prompts."""

    def __len__(self) -> int:
        """All blocks."""
        ...


class Chooser(Protocol):
    def choose(self, heads: Sequence[int], standing: Standing) -> int:
        """The class whose head goes. heads: of each class the leaf used longest ago, or EMPTY; at
        least one is not. Changes nothing: asked again it answers the same."""
        ...

    def admits(self, count: int, number: int, head: int, standing: Standing) -> bool:
        """Whether a new block, asked for `count` times before, is worth giving up `head`, of class
        `number`. Asked only where there is no room: what fits is always kept. Changes nothing."""
        ...

    def arrived(self, count: int, standing: Standing) -> None:
        """A new block came in, asked for `count` times before."""
        ...


class LeastRecent:
    """Leaf-first LRU: the leaf used longest ago goes, whatever its class."""

    def choose(self, heads: Sequence[int], standing: Standing) -> int:  # noqa: ARG002
        return heads.index(min(heads))

    def admits(self, count: int, number: int, head: int, standing: Standing) -> bool:  # noqa: ARG002
        return True

    def arrived(self, count: int, standing: Standing) -> None:
        pass


class SecondSight(LeastRecent):
    """LRU behind a doorkeeper: only what was asked for before displaces anything."""

    def admits(self, count: int, number: int, head: int, standing: Standing) -> bool:  # noqa: ARG002
        return count >= PROVEN


class S3Fifo(LeastRecent):
    """Quick demotion: blocks not yet asked for again get a tenth of the tier, and go first when
    they fill more. What was asked for before goes straight to the main part.

    Within each part the order is that of the last use: a block is touched where it lies and mended
    when it comes up, which is the second chance that the FIFO of the original gives.
    """

    SHARE: Final = 0.1

    def choose(self, heads: Sequence[int], standing: Standing) -> int:
        return _of_two_parts(heads, standing, self.SHARE)


class Arc(LeastRecent):
    """Two parts, asked for once and more often. The first one's share of the tier grows when
    something comes back that had been given up from it, and falls when the other's does.

    How often a block had been asked for before it came back stands in for the two ghost lists: once
    means it was given up before it was asked for again.
    """

    def __init__(self) -> None:
        self.share = 0.0

    def choose(self, heads: Sequence[int], standing: Standing) -> int:
        return _of_two_parts(heads, standing, self.share)

    def arrived(self, count: int, standing: Standing) -> None:
        if count == PROVEN:
            self.share = min(1.0, self.share + 1 / len(standing))
        elif count > PROVEN:
            self.share = max(0.0, self.share - 1 / len(standing))


def _of_two_parts(heads: Sequence[int], standing: Standing, share: float) -> int:
    """The leaf used longest ago among the blocks not yet asked for again if they fill more than
    their share, else among the others; where that part has no leaf, of the other."""
    unproven = len(standing) - standing.proven
    first, others = min(heads[:PROVEN]), min(heads[PROVEN:])
    if others == EMPTY or (first != EMPTY and unproven > share * len(standing)):
        return heads.index(first)
    return heads.index(others)


class Hazard(LeastRecent):
    """The leaf goes that is least worth its room, by what was learned of its class at its age
    (policy.reuse)."""

    def __init__(self, reuse: Reuse) -> None:
        self._reuse = reuse

    def choose(self, heads: Sequence[int], standing: Standing) -> int:
        worth, now, pace = self._reuse.worth, standing.now, standing.pace
        best, least, oldest = -1, 0.0, EMPTY
        for number, head in enumerate(heads):
            if head != EMPTY:
                found = worth(number, (now - (head >> BLOCK_BITS)) / pace)
                if best < 0 or found < least or (found == least and head < oldest):
                    best, least, oldest = number, found, head
        return best


class Worth(Hazard):
    """Hazard, and a new block comes in only where it is worth no less than what goes."""

    def admits(self, count: int, number: int, head: int, standing: Standing) -> bool:
        age = (standing.now - (head >> BLOCK_BITS)) / standing.pace
        return self._reuse.worth(count, 0) >= self._reuse.worth(number, age)


class WorthOnSecondSight(Worth):
    """Worth behind a doorkeeper. In a tier much smaller than what comes by, most blocks are gone
    before they could be asked for again, and it may pay to wait for those that were."""

    def admits(self, count: int, number: int, head: int, standing: Standing) -> bool:
        return count >= PROVEN and super().admits(count, number, head, standing)
