"""Where attention goes: the share of each piece, learned from what was attended to, and how sure
that is.

Pure: shares in, a choice of pieces out. A map outlives a context, so that the next request starts
with what the last ones showed; the first one starts with the newest pieces.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
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


CELLS_MAX: Final = 1 << 20
"""4 MiB of shares. A million tokens of 32 layers in blocks of 128 take a quarter of it, however
small their pieces; where there are more blocks, neighbours share a cell."""
_CELL_BYTES: Final = 4
_UNSEEN: Final = -1.0


class AttentionMap:
    """Bounded, whatever the context: by blocks, and by runs of so many blocks that CELLS_MAX are
    enough."""

    def __init__(self, cells_max: int = CELLS_MAX) -> None:
        self._cells_max = cells_max
        self._grain = 1
        """Blocks of a cell, a power of two."""
        self._shares: dict[int, array[float]] = {}
        """Of one piece, by layer and cell of its first block."""
        self._seen: dict[int, int] = {}
        self._captured: float | None = None

    def observe(self, layer: int, shares: Mapping[int, float], kept: Sequence[int]) -> None:
        """shares: of attention, by first block of each piece of the middle. kept: the same of those
        that are on the device."""
        if not shares:
            return
        self._judge(shares, kept)
        self._seen[layer] = self._seen.get(layer, 0) + 1
        self._make_room(layer, max(shares))
        cells = self._shares[layer]
        for at, share in self._by_cell(shares).items():
            before = cells[at] if cells[at] >= 0.0 else share
            cells[at] = before + WEIGHT * (share - before)

    @property
    def nbytes(self) -> int:
        return _CELL_BYTES * sum(map(len, self._shares.values()))

    def _by_cell(self, shares: Mapping[int, float]) -> Mapping[int, float]:
        """Where pieces share a cell, it has what one of them had on average."""
        if self._grain == 1:
            return shares
        sums: dict[int, tuple[float, int]] = {}
        for first, share in shares.items():
            total, count = sums.get(first // self._grain, (0.0, 0))
            sums[first // self._grain] = (total + share, count + 1)
        return {at: total / count for at, (total, count) in sums.items()}

    def _make_room(self, layer: int, first: int) -> None:
        """For a piece of the layer that begins there."""
        others = sum(len(cells) for number, cells in self._shares.items() if number != layer)
        while others and others + first // self._grain >= self._cells_max:
            self._coarsen()
            others = sum(len(cells) for number, cells in self._shares.items() if number != layer)
        while first // self._grain >= self._cells_max:
            self._coarsen()
        cells = self._shares.setdefault(layer, array("f"))
        cells.extend(array("f", [_UNSEEN]) * (first // self._grain + 1 - len(cells)))

    def _coarsen(self) -> None:
        self._grain *= 2
        for number, cells in self._shares.items():
            pairs = zip(cells[::2], [*cells[1::2], _UNSEEN][: len(cells[::2])], strict=True)
            self._shares[number] = array("f", [_mean(*pair) for pair in pairs])

    def _share(self, spot: Spot) -> float:
        layer, first = spot
        cells, at = self._shares.get(layer, ()), first // self._grain
        return max(0.0, cells[at]) if at < len(cells) else 0.0

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
        self, candidates: Collection[Spot], places: int, kept: Sequence[Spot] = ()
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
            share = self._share(spot) if known else 0.0
            return (share * (STAY if spot in there else 1.0), first - newest[layer], -layer)

        return nlargest(places, candidates, key=worth)


def _mean(one: float, other: float) -> float:
    if one < 0.0 or other < 0.0:
        return max(one, other)
    return (one + other) / 2
