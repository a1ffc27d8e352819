"""A tier whose loads keep coming late is not waited for, for a while.

The agent has a breaker that judges single reads. This one judges what a request sees: the whole
way of a load, with its queue. The states and moves are the same, onggi_core.breaker's table.
"""

from __future__ import annotations

from typing import Final

from onggi_core.breaker import MOVES, BreakerEvent, BreakerState

LATE_IN_A_ROW: Final = 3
"""One late load may be a hiccup; three requests in a row that waited in vain are a pattern."""

REST_MIN_S: Final = 5.0
REST_MAX_S: Final = 60.0
"""Each load that is late after a rest doubles the next rest: a request that waits in vain loses
`disk_wait_s`, so a broken disk costs one such wait a minute."""


class Lateness:
    """Of one tier. Ask `may_wait` before a load, tell `came` after it."""

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self._late = 0
        self._rest_s = REST_MIN_S
        self._opened_s = 0.0
        self._probed_s = float("-inf")

    def may_wait(self, now_s: float) -> bool:
        """Whether a load may be waited for. After a rest one is, and no other for as long again:
        a request that ends meanwhile never tells what became of its load."""
        if self.state is BreakerState.OPEN and now_s - self._opened_s >= self._rest_s:
            self._move(BreakerEvent.RESTED)
            self._probed_s = float("-inf")
        if self.state is not BreakerState.HALF_OPEN:
            return self.state is BreakerState.CLOSED
        probe = now_s - self._probed_s >= self._rest_s
        if probe:
            self._probed_s = now_s
        return probe

    def came(self, now_s: float, *, late: bool) -> None:
        """A load has ended. Those that began before a rest say nothing after it."""
        if self.state is BreakerState.OPEN:
            return
        if self.state is BreakerState.HALF_OPEN:
            if late:
                self._rest_s = min(REST_MAX_S, 2 * self._rest_s)
                self._open(BreakerEvent.FAILED, now_s)
            else:
                self._move(BreakerEvent.PASSED)
                self._late, self._rest_s = 0, REST_MIN_S
            return
        self._late = self._late + 1 if late else 0
        if self._late >= LATE_IN_A_ROW:
            self._open(BreakerEvent.TRIPPED, now_s)

    def _open(self, event: BreakerEvent, now_s: float) -> None:
        self._move(event)
        self._opened_s, self._late = now_s, 0

    def _move(self, event: BreakerEvent) -> None:
        self.state = MOVES[self.state, event]
