"""Where attention goes: the share of each piece, learned from what was attended to, and how sure
that is.

Pure: shares in, a choice of pieces out. A map outlives a context, so that the next request starts
with what the last ones showed; the first one starts with the newest pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

Spot = tuple[int, int]
"""(layer, first block of a piece)."""

WEIGHT: Final = 0.25
"""Of the newest observation."""
SEEN_MIN: Final = 8
"""Observations of a layer before its shares are believed."""
STAY: Final = 1.25
"""A piece that is on the device goes only for one with so many times its share: a swap costs a
copy, and shares are noisy."""


class AttentionMap:
    """Bounded by the pieces of the longest context that it saw."""

    def __init__(self) -> None:
        self._shares: dict[Spot, float] = {}
        self._seen: dict[int, int] = {}
        self._captured: float | None = None

    def observe(self, layer: int, shares: Mapping[int, float], kept: Sequence[int]) -> None:
        """shares: of attention, by first block of each piece of the middle. kept: the same of those
        that are on the device."""
        if not shares:
            return
        self._judge(shares, kept)
        self._seen[layer] = self._seen.get(layer, 0) + 1
        for first, share in shares.items():
            spot = (layer, first)
            before = self._shares.get(spot, share)
            self._shares[spot] = before + WEIGHT * (share - before)

    def _judge(self, shares: Mapping[int, float], kept: Sequence[int]) -> None:
        """How much of what as many pieces could have had the kept ones had."""
        best = sum(sorted(shares.values(), reverse=True)[: len(kept)])
        if best <= 0.0:
            return
        captured = sum(shares.get(first, 0.0) for first in kept) / best
        before = captured if self._captured is None else self._captured
        self._captured = before + WEIGHT * (captured - before)

    @property
    def sureness(self) -> float | None:
        """0 to 1: the attention that the pieces on the device had, of the most that as many could
        have had, lately. None: nothing was kept yet, or too little was seen."""
        seen = min(self._seen.values(), default=0)
        return self._captured if seen >= SEEN_MIN else None

    def choose(
        self, candidates: Sequence[Spot], places: int, kept: Sequence[Spot] = ()
    ) -> list[Spot]:
        """Which of the candidates should be on the device. Layers of which too little was seen have
        their newest pieces there."""
        if len(candidates) <= places:
            return list(candidates)
        there = set(kept)
        newest: dict[int, int] = {}
        for layer, first in candidates:
            newest[layer] = max(first, newest.get(layer, 0))

        def worth(spot: Spot) -> tuple[float, int, int]:
            layer, first = spot
            known = self._seen.get(layer, 0) >= SEEN_MIN
            share = self._shares.get(spot, 0.0) if known else 0.0
            return (share * (STAY if spot in there else 1.0), first - newest[layer], -layer)

        return sorted(candidates, key=worth, reverse=True)[:places]
