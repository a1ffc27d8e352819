"""What a block is worth: learned from the stream, for each class of blocks and each age.

Age is the prompts that went by since the block was asked for. `Reuse` is told of ages at which
blocks came back and of ages that others have reached without it, so it knows for each class how
likely a block is to be asked for again at each age: its hazard. The worth of a block at some age is
the best that can be had of keeping it: over all times one could go on waiting, the chance that it
is asked for in that time, by the time that it would take its room. A scheduler knows this as the
index of a job of unknown length.

So a block whose like come back after a thousand uses is kept through the first thousand, in which
nothing happens, in preference to one whose time is over; LRU does the opposite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onggi_core.policy.classes import CLASSES

EDGES: Final = tuple(sorted({0, 1, 2, 3} | {round(2 ** (n / 2)) for n in range(4, 80)}))
"""Lowest age of each bucket: half an octave each, as far as any tier may remember."""

BUCKETS: Final = len(EDGES)

_WIDTH: Final = tuple(
    (EDGES[n + 1] if n + 1 < BUCKETS else 2 * EDGES[n]) - EDGES[n] for n in range(BUCKETS)
)

EVENTS_MAX: Final = 1 << 16
"""Reuses of a class remembered; then all of its past counts half, so that a change is noticed."""

_PRIOR: Final = 0.02
"""Hazard of a bucket of which nothing is known. The same for each half octave, so that it falls
with age as fast as age grows: where nothing was learned, the block used longest ago goes first."""

_PRIOR_BLOCKS: Final = 8.0
"""How many blocks' experience that is worth. A class's own prior is what was learned of the class
below it, as a block that was asked for more often is hardly worth less."""


def bucket_of(age: int) -> int:
    return bisect_right(EDGES, age) - 1


class Reuse:
    def __init__(self) -> None:
        self._back = [[0.0] * BUCKETS for _ in range(CLASSES)]
        """Blocks that came back, by the age at which they did."""
        self._lost = [[0.0] * BUCKETS for _ in range(CLASSES)]
        """Blocks forgotten before they did, by the age until which they were watched."""
        self._hazard = [[_PRIOR] * BUCKETS for _ in range(CLASSES)]
        self._worth = [_indexes(hazard) for hazard in self._hazard]

    def worth(self, number: int, age: float) -> float:
        """Of a block of this class: chance to be asked for again, by the prompts it takes."""
        return self._worth[number][bisect_right(EDGES, age) - 1]

    def came_back(self, number: int, age: int) -> None:
        self._back[number][bisect_right(EDGES, age) - 1] += 1

    def was_lost(self, number: int, age: int) -> None:
        self._lost[number][bisect_right(EDGES, age) - 1] += 1

    def begin(self, number: int) -> Learning:
        """What is known of a class at this moment, for `learn`."""
        return Learning(number, self._back[number][:], self._lost[number][:])

    def learn(self, known: Learning, waiting: Sequence[int]) -> None:
        """Works out a class anew. waiting: how many of it are watched since, by their age."""
        back = known.back
        below = self._hazard[known.number - 1] if known.number else [_PRIOR] * BUCKETS
        hazard = [0.0] * BUCKETS
        at_risk = _PRIOR_BLOCKS
        for n in range(BUCKETS - 1, -1, -1):
            ended = known.lost[n] + waiting[n]
            hazard[n] = (back[n] + _PRIOR_BLOCKS * below[n]) / (at_risk + back[n] + ended / 2)
            at_risk += back[n] + ended
        self._hazard[known.number] = hazard
        self._worth[known.number] = _indexes(hazard)
        total = sum(back)
        if total > EVENTS_MAX:
            self._back[known.number] = [value / 2 for value in self._back[known.number]]
            self._lost[known.number] = [value / 2 for value in self._lost[known.number]]


@dataclass(frozen=True, slots=True)
class Learning:
    """What was known of a class when a count of those that wait began."""

    number: int
    back: list[float]
    lost: list[float]


def _indexes(hazard: Sequence[float]) -> list[float]:
    return [_index(hazard, n) for n in range(BUCKETS)]


def _index(hazard: Sequence[float], begin: int) -> float:
    """The best ratio of chance to expected time, over all buckets until which one could wait."""
    best, chance, time, alive = 0.0, 0.0, 0.0, 1.0
    for n in range(begin, BUCKETS):
        chance += alive * hazard[n]
        time += alive * (1 - hazard[n] / 2) * _WIDTH[n]
        alive *= 1 - hazard[n]
        if chance > best * time:
            best = chance / time
        elif chance + alive < best * time:
            break  # not even all that is left would lift it
    return best
