"""Which regions of a tier are in use, coming or leaving, against a budget that may change."""

from __future__ import annotations


class Regions:
    """Extents or segments by number; one in none of the sets is not there."""

    __slots__ = ("again_s", "budget", "coming", "leaving", "most", "ready", "told")

    def __init__(self, most: int) -> None:
        self.most = most
        self.budget = most
        self.told = False
        """Whether a budget was set in this life."""
        self.ready: set[int] = set()
        """Their pages are handed out."""
        self.coming: set[int] = set()
        """Being touched."""
        self.leaving: dict[int, int] = {}
        """Withdrawn; let go of once empty -> the page to look at next."""
        self.again_s = 0.0
        """When one may be asked for again; 0 while none was refused."""

    def knows(self, number: int) -> bool:
        return number in self.ready or number in self.coming or number in self.leaving

    @property
    def settled(self) -> bool:
        """Whether there is nothing to do for the budget."""
        here = len(self.ready)
        return not self.leaving and (
            here == self.budget or (here < self.budget <= here + len(self.coming))
        )
