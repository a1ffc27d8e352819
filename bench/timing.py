"""Timing contestants against each other on a machine that is never quite quiet.

They take turns, round by round, and the order turns too: a burst of somebody else's work, or a
processor cache that one leaves behind for the next, meets all of them alike. Medians are taken of
what remains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

Contestant = Callable[[int], float | None]
"""Does the work of one round, given the round's number. Answers the seconds it took if it timed
itself, as one in another process does: the way there and back is not its work."""


def interleaved(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    warm_up: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Seconds of each contestant's rounds, [contestants][rounds], warm-up rounds left out."""
    times: list[list[float]] = [[] for _ in contestants]
    count = len(contestants)
    for number in range(warm_up + rounds):
        for turn in range(count):
            who = (number + turn) % count
            begin_s = clock()
            said_s = contestants[who](number)
            took_s = clock() - begin_s
            if number >= warm_up:
                times[who].append(took_s if said_s is None else said_s)
    return times


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of all are not above: 0.5 is the median, 0.99 the
    99th percentile. A real sample, never a mean of two. Raises ValueError for none."""
    if not samples:
        raise ValueError("samples is empty; measure something first")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share is {share}; use more than 0 and up to 1")
    ordered = sorted(samples)
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[int(rank) - 1]


def median(samples: Sequence[float]) -> float:
    return quantile(samples, 0.5)
