"""When a tier answers too slowly or not at all, loads from it are misses: the engine computes.

One breaker a tier. It judges reads by the time the tier needs for one, not by how long that one
waited its turn: the time since the tier last finished a read, or since this one began if that is
later. So a deep queue on a fast disk is healthy, one read at a time on a slow disk is not, and a
disk that hangs is seen without any read coming back.

    CLOSED --TRIPPED--> OPEN --RESTED--> HALF_OPEN --PASSED--> CLOSED
                         ^-------FAILED-------'

Half open lets one read through at a time, whose load waits within its deadline like any other.
Closing asks for several in a row, at twice the speed that opening tolerates, and each failure
doubles the rest: a disk on the edge does not flap.
"""

from __future__ import annotations

import enum
from typing import Final

from onggi_core.engine.events import IoOutcome
from onggi_core.errors import IllegalMove

SLOW_READ_S: Final = 0.1
"""A read is at most a megabyte or one page. A local NVMe needs a millisecond for it and a busy
network volume ten; at a hundred, a GPU has computed the same tokens many times over."""
CLOSING_READ_S: Final = SLOW_READ_S / 2
HUNG_S: Final = 1.0
"""Reads under way and none of them done for so long: the tier hangs. Longer than the stalls of a
healthy drive that collects garbage, shorter than the time an engine gives a load."""
WINDOW_READS: Final = 16
BAD_READS: Final = 8
"""Of the last WINDOW_READS. Half: one bad place, or a stall that held up four reads, opens
nothing."""
PROBES: Final = 3
REST_MIN_S: Final = 1.0
REST_MAX_S: Final = 32.0
STEADY_S: Final = 60.0
"""Closed for so long, the next opening begins with the shortest rest again."""


class BreakerState(enum.IntEnum):
    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class BreakerEvent(enum.IntEnum):
    TRIPPED = 0
    RESTED = 1
    FAILED = 2
    PASSED = 3


MOVES: Final[dict[tuple[BreakerState, BreakerEvent], BreakerState]] = {
    (BreakerState.CLOSED, BreakerEvent.TRIPPED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.RESTED): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.FAILED): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.PASSED): BreakerState.CLOSED,
}


class Breaker:
    """Ask `may_read`, tell `began` of each read, and `ended` of each that comes back.

    A read is one job of the tier, however many pages it has. Reads that began before the breaker
    last opened say nothing any more: they may come back minutes later, or never.
    """

    __slots__ = (
        "_closed_s",
        "_history",
        "_opened_s",
        "_passed",
        "_progress_s",
        "_rest_s",
        "_under_way",
        "opened",
        "state",
    )

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self.opened = 0
        """Times it opened since start; half-open failures are not new openings."""
        self._under_way = 0
        self._progress_s = 0.0
        """When a read last came back, or the first of those under way began."""
        self._history = 0
        """Bit i: read number -i was bad. Only the last WINDOW_READS."""
        self._passed = 0
        self._opened_s = float("-inf")
        self._closed_s = float("-inf")
        self._rest_s = REST_MIN_S

    def may_read(self, now_s: float) -> bool:
        """Whether a read may begin now. Also what finds a hang, so ask on every tick."""
        if self._under_way and now_s - self._progress_s > HUNG_S:
            self._open(now_s)
        if self.state is BreakerState.OPEN and now_s - self._opened_s >= self._rest_s:
            self._move(BreakerEvent.RESTED)
            self._passed = 0
        if self.state is BreakerState.CLOSED:
            return True
        return self.state is BreakerState.HALF_OPEN and not self._under_way

    def began(self, now_s: float) -> None:
        """A read that `may_read` allowed is under way."""
        if not self._under_way:
            self._progress_s = now_s
        self._under_way += 1

    def ended(self, outcome: IoOutcome, *, began_s: float, now_s: float) -> None:
        """A read came back. outcome: the worst of its pages.

        CORRUPT is the page's fault, not the device's, and counts by its time alone; ABANDONED was
        never begun by the device and counts for nothing.
        """
        if began_s <= self._opened_s:
            return
        self._under_way -= 1
        if outcome is IoOutcome.ABANDONED:
            return
        took_s = now_s - max(began_s, self._progress_s)
        self._progress_s = now_s
        faulty = outcome is IoOutcome.FAULT
        if self.state is BreakerState.HALF_OPEN:
            self._probed(now_s, good=not faulty and took_s <= CLOSING_READ_S)
            return
        bad = faulty or took_s > SLOW_READ_S
        self._history = (self._history << 1 | bad) & ((1 << WINDOW_READS) - 1)
        if self._history.bit_count() >= BAD_READS:
            self._open(now_s)

    def _probed(self, now_s: float, *, good: bool) -> None:
        if not good:
            self._open(now_s)
            return
        self._passed += 1
        if self._passed >= PROBES:
            self._move(BreakerEvent.PASSED)
            self._closed_s = now_s
            self._history = 0

    def _open(self, now_s: float) -> None:
        """Reads under way are written off: whatever becomes of them is not asked any more."""
        if self.state is BreakerState.CLOSED:
            self._move(BreakerEvent.TRIPPED)
            self.opened += 1
            steady = now_s - self._closed_s >= STEADY_S
        else:
            self._move(BreakerEvent.FAILED)
            steady = False
        self._rest_s = REST_MIN_S if steady else min(REST_MAX_S, 2 * self._rest_s)
        self._opened_s = now_s
        self._under_way = 0

    def _move(self, event: BreakerEvent) -> None:
        after = MOVES.get((self.state, event))
        if after is None:
            raise IllegalMove("breaker", self.state.name, event.name)
        self.state = after
