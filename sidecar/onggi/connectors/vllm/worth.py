"""Load or compute: from what was measured here, how much of a hit is worth loading.

Everything is a straight line through what was seen, newer measurements counting more: a load takes
so long plus so much a block, a step so long plus so much a token. A tier stops being used when its
blocks take clearly longer to load than to compute, and is used again when they are clearly
cheaper; in between nothing changes, so that noise does not flip it. Too few measurements decide
nothing: then everything is loaded. A tier that is not used would never be measured again, so now
and then one hit is loaded all the same.
"""

from __future__ import annotations

import enum
from typing import Final

KEPT: Final = 0.9
"""Of a measurement's weight when the next one comes: the last twenty or so count."""

SAMPLES_MIN: Final = 8
LOADED_BLOCKS_MIN: Final = 32
COMPUTED_TOKENS_MIN: Final = 2048
"""Before so much was measured of loading and of computing, nothing is decided by it."""

CLEARLY: Final = 1.25
"""How much dearer, or cheaper, before a tier's use changes."""

TRY_AGAIN_S: Final = 10.0
"""A tier that is not worth using is tried with one hit in this time."""


class Tier(enum.Enum):
    HOST = "host"
    DISK = "disk"


class Line:
    """seconds = fixed + slope * amount, fitted to what was seen. Neither is below 0."""

    def __init__(self) -> None:
        self.samples = 0
        self.amount = 0.0
        """Of all samples, undiscounted."""
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, amount: float, seconds: float) -> None:
        self.samples += 1
        self.amount += amount
        self._n = KEPT * self._n + 1
        self._x = KEPT * self._x + amount
        self._y = KEPT * self._y + seconds
        self._xx = KEPT * self._xx + amount * amount
        self._xy = KEPT * self._xy + amount * seconds

    @property
    def slope(self) -> float:
        """Seconds a unit. Where all amounts are about alike, all of the time is the amount's."""
        if not self._x:
            return 0.0
        spread = self._n * self._xx - self._x * self._x
        whole = self._y / self._x
        if spread < 0.01 * self._x * self._x:
            return whole
        return min(whole, max(0.0, (self._n * self._xy - self._x * self._y) / spread))

    def seconds(self, amount: float) -> float:
        """What so much takes, from all that was seen."""
        if not self._n:
            return 0.0
        fixed = max(0.0, (self._y - self.slope * self._x) / self._n)
        return fixed + self.slope * amount


class Worth:
    """Of the scheduler; not thread-safe. Amounts of loads are blocks, of steps tokens."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._steps = Line()
        self._loads = {tier: Line() for tier in Tier}
        self._pays = dict.fromkeys(Tier, True)
        self._tried_s = dict.fromkeys(Tier, float("-inf"))

    def computed(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens took so long."""
        self._steps.add(tokens, seconds)

    def loaded(self, tier: Tier, blocks: int, seconds: float) -> None:
        """So many blocks came from a tier, and a request waited so long for them."""
        self._loads[tier].add(blocks, seconds)

    def compute_s(self, blocks: int) -> float | None:
        """What computing so many blocks adds to a step; None: too little was measured."""
        steps = self._steps
        if steps.samples < SAMPLES_MIN or steps.amount < COMPUTED_TOKENS_MIN:
            return None
        return steps.slope * blocks * self._block_tokens

    def take(self, host: int, disk: int, now_s: float) -> int:
        """Of a hit of `host` blocks and `disk` more behind them, the leading blocks to load: all,
        those of the host tier, or none."""
        if host and not self._use(Tier.HOST, host, now_s):
            return 0
        if disk and not self._use(Tier.DISK, disk, now_s):
            return host
        return host + disk

    def _use(self, tier: Tier, blocks: int, now_s: float) -> bool:
        load, compute_s = self._loads[tier], self.compute_s(blocks)
        if compute_s is None or load.samples < SAMPLES_MIN or load.amount < LOADED_BLOCKS_MIN:
            return True
        pays = load.seconds(blocks) <= compute_s * (CLEARLY if self._pays[tier] else 1 / CLEARLY)
        self._pays[tier] = pays
        if pays or now_s - self._tried_s[tier] >= TRY_AGAIN_S:
            self._tried_s[tier] = now_s
            return True
        return False
