"""What the agent's shell counts by itself: requests, faults of clients, and how long things take.

Plain numbers on the hot path, since recording one value in an OpenTelemetry histogram costs about
15 us here, a fifth of what a whole lookup may take. So one request in SAMPLE_EVERY is timed, and
the values are handed to the histograms when metrics are read.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

SAMPLE_EVERY: Final = 16
SAMPLES_MAX: Final = 4096
"""Timings kept between two scrapes; the oldest go first."""
OPS_COUNTED: Final = 64
"""Operation numbers that get a count of their own; a client may send any."""


SENTENCE_CHARS_MAX: Final = 400
"""Of what a client was refused for, which has values of the client's in it."""


class Timed(NamedTuple):
    op: int
    begun_s: float


class Tally:
    """Counts since the agent's start. The plane's; others only read, and count faults of theirs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.requests = [0] * OPS_COUNTED
        self.faults: dict[str, int] = {}
        self.refused_clients = 0
        """Those that got no session."""
        self.last_refusal = ""
        """What the last of them was told."""
        self.samples: deque[tuple[int, float]] = deque(maxlen=SAMPLES_MAX)
        self._clock = clock
        self._until_sample = 1

    def begin(self, op: int) -> Timed | None:
        """Count a request; answers something to `end` when this one is to be timed."""
        if op < OPS_COUNTED:
            self.requests[op] += 1
        self._until_sample -= 1
        if self._until_sample:
            return None
        self._until_sample = SAMPLE_EVERY
        return Timed(op, self._clock())

    def end(self, timed: Timed) -> None:
        self.samples.append((timed.op, self._clock() - timed.begun_s))

    def refuse_client(self, sentence: str) -> None:
        self.refused_clients += 1
        self.last_refusal = sentence[:SENTENCE_CHARS_MAX]

    def fault(self, kind: str, count: int = 1) -> None:
        """kind: from a fixed set of words, since it becomes a metric's label."""
        if count:
            self.faults[kind] = self.faults.get(kind, 0) + count
