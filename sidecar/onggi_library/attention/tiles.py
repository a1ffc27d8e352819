"""What one piece contributes to many queries, in tiles: memory for a mask or for scores does not
grow with the prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from onggi_library.attention.kernel import attend, flash_takes
from onggi_library.attention.partial import Partial, merge, nothing
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.visible import Sight, Visibility

ELEMENTS_MAX: Final = 2**22
"""Of one tile's mask or scores, over batch and heads: 16 MiB in float32."""

Seen = Callable[[Span, Span], Any]
"""Of a span of queries and a span of keys: bool [batch or 1, heads or 1, queries, keys], True where
a key may be seen, or None where all may be."""


@dataclass(frozen=True)
class Asking:
    """Queries [batch, heads, at.length, head size], where they stand, and how they attend.

    softcap: scores s become softcap * tanh(s / softcap), as Gemma 2 has it; None: they stay.
    """

    queries: Any
    at: Span
    value_size: int
    scale: float
    visible: Visibility
    seen: Seen | None = None
    softcap: float | None = None

    def sees(self, keys: Span) -> bool:
        """Whether any of the queries may see any of these keys."""
        return self.visible.sight(self.at, keys) != Sight.NONE

    def nothing(self) -> Partial:
        return nothing(self.queries, self.value_size)


def seen_of(mask: Any) -> Callable[[Span], Seen | None]:
    """Masks of either kind as functions. mask: None, such a function, or bool [batch or 1, heads or
    1, queries, keys] over positions 0 up to keys. The answer wants to know where the queries stand.
    """
    if mask is None or callable(mask):
        return lambda _at: mask

    def of(at: Span) -> Seen:
        def seen(queries: Span, keys: Span) -> Any:
            first = queries.start - at.start
            return mask[..., first : first + queries.length, keys.start : keys.end]

        return seen

    return of


def contribution(asking: Asking, piece: Piece) -> Partial:
    """What the piece contributes to the queries."""
    queries, at, keys = asking.queries, asking.at, piece.span
    if not asking.sees(keys):
        return asking.nothing()
    whole = asking.seen is None and asking.visible.sight(at, keys) == Sight.ALL
    if whole and asking.softcap is None and flash_takes(queries, piece.keys, piece.values):
        return attend(queries, piece.keys, piece.values, scale=asking.scale)
    pairs = max(1, ELEMENTS_MAX // (queries.shape[0] * queries.shape[1]))
    count = min(at.length, math.isqrt(pairs))
    length = min(keys.length, pairs // count)
    parts = [_row(asking, rows, piece, length) for rows in _cut(at, count)]
    if len(parts) == 1:
        return parts[0]
    return Partial(
        torch.cat([part.out for part in parts], dim=2),
        torch.cat([part.lse for part in parts], dim=2),
    )


def _row(asking: Asking, rows: Span, piece: Piece, length: int) -> Partial:
    """The contribution to some of the queries."""
    first = rows.start - asking.at.start
    queries = asking.queries[:, :, first : first + rows.length]
    total = nothing(queries, asking.value_size)
    for keys in _cut(piece.span, length):
        sight = asking.visible.sight(rows, keys)
        if sight == Sight.NONE:
            continue
        mask = None if asking.seen is None else asking.seen(rows, keys)
        if mask is not None:
            mask = mask.to(queries.device)
        if sight == Sight.SOME:
            rule = asking.visible.mask(rows, keys, queries.device)[None, None]
            mask = rule if mask is None else rule & mask
        begin = keys.start - piece.span.start
        part = attend(
            queries,
            piece.keys[:, :, begin : begin + keys.length],
            piece.values[:, :, begin : begin + keys.length],
            scale=asking.scale,
            mask=mask,
            softcap=asking.softcap,
        )
        total = merge(total, part)
    return total


def _cut(span: Span, length: int) -> Iterator[Span]:
    for start in range(span.start, span.end, length):
        yield Span(start, min(length, span.end - start))
