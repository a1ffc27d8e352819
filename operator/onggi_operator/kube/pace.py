"""How fast an operator writes: a token bucket, so that a cluster in which everything happens at
once is written at the pace of any other day."""

from typing import Final

WRITES_PER_S: Final = 16.0
WRITES_AT_ONCE: Final = 4
"""Together the most in any second, 20: API servers are shared, and what Onggi writes is never more
urgent than what people do."""


class Pace:
    """Counts writes against what time gives. Writes that have to wait stand in line."""

    def __init__(self, per_s: float = WRITES_PER_S, at_once: int = WRITES_AT_ONCE) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._free = float(at_once)
        self._at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """How long the write that is about to be made has to wait; it counts from now on."""
        if self._at_s is not None:
            gained = max(0.0, now_s - self._at_s) * self._per_s
            self._free = min(float(self._at_once), self._free + gained)
        self._at_s = now_s
        self._free -= 1
        return max(0.0, -self._free / self._per_s)
