"""What happens when: one queue of simulated time, in an order that the seed decides."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

Deed = Callable[[], None]


class Agenda:
    """now_s never goes back. Deeds due at one moment come in an order drawn from the seed."""

    def __init__(self, rng: Random) -> None:
        self.now_s = 0.0
        self._rng = rng
        self._queue: list[tuple[float, float, int, Deed]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._queue)

    def after(self, delay_s: float, deed: Deed) -> None:
        self._serial += 1
        due_s = self.now_s + delay_s
        heapq.heappush(self._queue, (due_s, self._rng.random(), self._serial, deed))

    def next(self) -> Deed:
        """The next deed; the clock goes on to it."""
        due_s, _, _, deed = heapq.heappop(self._queue)
        self.now_s = max(self.now_s, due_s)
        return deed

    def jump(self, by_s: float) -> None:
        """The machine slept: the clock leaps, and all that became due is due at once."""
        self.now_s += by_s
        self._queue = [
            (max(due_s, self.now_s), dice, serial, deed)
            for due_s, dice, serial, deed in self._queue
        ]
        heapq.heapify(self._queue)
