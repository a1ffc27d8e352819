"""Bounds of the pieces in tiers, for skipping that is certified: taken of rows as they go down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.skipping import Box, box
from onggi_library.context.geometry import Geometry
from onggi_library.context.pieces import Cut


class Boxes:
    """Of one layer. Wider than a piece that lost tokens, if need be, and never narrower."""

    def __init__(self, geometry: Geometry, cut: Cut) -> None:
        self._geometry = geometry
        self._cut = cut
        self._boxes: list[Box] = []

    def add(self, first: int, rows: Any) -> None:
        """Blocks from `first` on, rows [batch, tokens, width]."""
        block = self._geometry.block_tokens
        end = first + rows.shape[1] // block
        for number, bounds in enumerate(self._cut.pieces(end)):
            begin, until = max(first, bounds.first), min(end, bounds.end)
            if begin < until:
                part = rows[:, (begin - first) * block : (until - first) * block]
                self._widen(number, box(self._piece(part)))

    def all(self) -> list[Box]:
        """By the piece's number."""
        return self._boxes

    @property
    def nbytes(self) -> int:
        return sum(
            part.numel() * part.element_size()
            for one in self._boxes
            for part in (one.low, one.high, one.value)
        )

    def reorder(self, order: Sequence[int]) -> None:
        rows = list(order)
        self._boxes = [
            Box(one.low[rows], one.high[rows], one.value[rows], one.length) for one in self._boxes
        ]

    def _piece(self, rows: Any) -> Piece:
        keys, values = self._geometry.parts(rows)
        return Piece(Span(0, rows.shape[1]), keys, values)

    def _widen(self, number: int, more: Box) -> None:
        if number == len(self._boxes):
            self._boxes.append(more)
            return
        old = self._boxes[number]
        self._boxes[number] = Box(
            torch.minimum(old.low, more.low),
            torch.maximum(old.high, more.high),
            torch.maximum(old.value, more.value),
            old.length + more.length,
        )
