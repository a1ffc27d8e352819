"""How much is measured: enough for figures, or just enough to see that everything works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Sizes:
    """working_set_bytes: rounds walk through this much on either side, so that no contestant finds
    its bytes in a cache because the round before left them there. times_around: how often, warm-up
    left out."""

    working_set_bytes: int
    times_around: int
    lookup_rounds: int
    lookups_a_round: int

    @property
    def arena(self) -> str:
        """The working set and an extent: it holds all that is loaded, and what stores walk through
        is no more memory than what their peers do."""
        return f"{self.working_set_bytes // MIB + 64}MiB"

    @property
    def small_arena(self) -> str:
        """Half the working set: what is walked through has gone to disk when it comes up again."""
        return f"{self.working_set_bytes // 2 // MIB}MiB"

    @property
    def disk(self) -> str:
        return f"{4 * self.working_set_bytes // MIB}MiB"


FULL: Final = Sizes(256 * MIB, times_around=2, lookup_rounds=10, lookups_a_round=300)
QUICK: Final = Sizes(64 * MIB, times_around=1, lookup_rounds=2, lookups_a_round=20)
