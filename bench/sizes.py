"""How much is measured: enough for figures, or just enough to see that everything works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
POOL_FACTOR: Final = 4
"""A peer keeps this many times what is walked through, so that it never has to refuse a store."""


@dataclass(frozen=True)
class Sizes:
    """working_set_bytes: rounds walk through this much on either side, so that no contestant finds
    its bytes in a cache because the round before left them there. times_around: how often, warm-up
    left out. index_blocks: of the memory and re-adoption figures. scale_s: how long the
    controller of a large cluster is watched. library_scale: the part of their bytes that contexts
    of the library have, 0 for what fits the machine. peers: False leaves out those that have to be
    installed."""

    quick: bool
    working_set_bytes: int
    times_around: int
    lookup_rounds: int
    lookups_a_round: int
    disk_turns: int
    disk_turn_s: float
    index_blocks: int
    engine_rounds: int
    scale_s: float
    library_scale: int = 0
    peers: bool = True

    @property
    def arena(self) -> str:
        """The working set and an extent: it holds all that is loaded, and what stores walk through
        is no more memory than what their peers do."""
        return f"{self.working_set_bytes // MIB + 64}MiB"


FULL: Final = Sizes(
    quick=False,
    working_set_bytes=256 * MIB,
    times_around=2,
    lookup_rounds=10,
    lookups_a_round=300,
    disk_turns=5,
    disk_turn_s=1.5,
    index_blocks=1_000_000,
    engine_rounds=7,
    scale_s=240,
)
QUICK: Final = Sizes(
    quick=True,
    working_set_bytes=32 * MIB,
    times_around=1,
    lookup_rounds=2,
    lookups_a_round=20,
    disk_turns=1,
    disk_turn_s=0.3,
    index_blocks=20_000,
    engine_rounds=1,
    scale_s=15,
)
