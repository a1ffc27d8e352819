"""How long to wait before the API server is asked again: longer each time, never all at once."""

import random
from typing import Final

FIRST_S: Final = 0.5
MAX_S: Final = 30.0
"""A server that comes back is asked within half a minute by everybody, spread over all of it."""

DOUBLINGS_MAX: Final = 10
SPREAD: Final = 0.5
"""Of each wait this part is drawn: callers that failed together do not come back together."""

ASKED_MAX_S: Final = 300.0
"""What a server may ask for; more is a mistake of whatever stands between."""


class Backoff:
    """`dice` spreads the waits."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.failures = 0
        """In a row."""

    def failed(self, *, asked_s: float = 0.0) -> float:
        """Seconds to wait now; at least what the server asked for."""
        wait_s = min(MAX_S, FIRST_S * float(2 ** min(self.failures, DOUBLINGS_MAX)))
        self.failures += 1
        drawn_s = wait_s * (1 - SPREAD * self._dice.random())
        return max(drawn_s, min(asked_s, ASKED_MAX_S) * (1 + SPREAD * self._dice.random()))

    def succeeded(self) -> None:
        self.failures = 0
