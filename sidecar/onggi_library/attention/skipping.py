"""Which pieces cannot matter, with proof: attention that leaves them out and says by how much.

Of each piece the least and the greatest key are kept, channel by channel, and the greatest size
of a value. No key of the piece can then score higher than the best corner of that box (as in Tang
et al., "Quest", 2024, who guess with it; here it bounds), so the piece's sum of exponentials is
at most its length times that. What is left out moves the output, a mean of values, by at most its
share of the whole sum times the distance of two values: one that was left out, and the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onggi_library.attention.partial import Partial, merge
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.streaming import Heed, Source, ahead
from onggi_library.attention.tiles import Asking, contribution, seen_of
from onggi_library.attention.visible import Visibility

# Scores are sums of head-size many products, each rounded, and a kernel may round the product's
# factors to a matrix unit's own format first: TF32 keeps 10 bits.
_ROUNDING = 2.0**-10


@dataclass(frozen=True)
class Box:
    """The extremes of one piece.

    low, high: [batch, kv heads, head size], float32, channel by channel over its keys.
    value: [batch, kv heads], float32, the greatest absolute value. length: its tokens.
    """

    low: Any
    high: Any
    value: Any
    length: int


@dataclass(frozen=True)
class Certified:
    """out as `attention` gives it, and what it can be wrong by.

    share [batch, heads, queries]: at most this part of the attention was left out.
    error [batch, heads, queries]: no element of the output is farther from the exact one.
    skipped: numbers of the pieces that were never fetched.
    """

    partial: Partial
    share: Any
    error: Any
    skipped: tuple[int, ...]


def box(piece: Piece) -> Box:
    """The extremes of a piece. They are exact: taken of the stored keys, before any rounding."""
    keys = piece.keys.float()
    return Box(
        low=keys.amin(dim=2),
        high=keys.amax(dim=2),
        value=piece.values.float().abs().amax(dim=(2, 3)),
        length=piece.span.length,
    )


def log_mass(queries: Any, extremes: Box, *, scale: float) -> Any:
    """At least the logarithm of a piece's sum of exponentials: float32 [batch, heads, queries]."""
    heads, kv_heads = queries.shape[1], extremes.low.shape[1]
    query = queries.float() * scale
    low = extremes.low.repeat_interleave(heads // kv_heads, dim=1).unsqueeze(2)
    high = extremes.high.repeat_interleave(heads // kv_heads, dim=1).unsqueeze(2)
    best = torch.maximum(query * low, query * high).sum(dim=-1)
    size = (query.abs() * torch.maximum(low.abs(), high.abs())).sum(dim=-1)
    return best + size * _ROUNDING + math.log(extremes.length)


def attention_within(
    queries: Any,
    at: Span,
    source: Source,
    boxes: Sequence[Box],
    *,
    epsilon: float,
    value_size: int,
    scale: float,
    visible: Visibility,
    mask: Any = None,
) -> Certified:
    """Attention that fetches no piece that is shown to hold little: in sum at most `epsilon` of
    what any query attends to is left out. Arguments as for `attention`; boxes: one a piece.

    Pieces are read from the one that may matter most to the one that may matter least, so that
    the rest can be left as soon as it is small enough. Raises ValueError for an epsilon that is
    not at least 0 and under 1.
    """
    seen = seen_of(mask)(at)
    asking = Asking(queries, at, value_size, scale, visible, seen)
    return attend_within(asking, source, boxes, epsilon)


def attend_within(
    asking: Asking,
    source: Source,
    boxes: Sequence[Box],
    epsilon: float,
    known: Partial | None = None,
    heed: Heed | None = None,
) -> Certified:
    """The same, as one asks it. known: what keys that are no part of the source contribute; with
    them even the first piece may be too little. heed: see `attend_all`."""
    if not 0.0 <= epsilon < 1.0:
        raise ValueError(f"epsilon is {epsilon}; a share of attention, from 0 to less than 1")
    if asking.softcap is not None and epsilon > 0.0:
        raise ValueError(
            f"epsilon is {epsilon} and scores are capped at {asking.softcap}: bounds are of scores "
            "that are not; use an epsilon of 0"
        )
    queries = asking.queries
    wanted = [n for n, span in enumerate(source.spans) if asking.sees(span)]
    masses = {n: log_mass(queries, boxes[n], scale=asking.scale) for n in wanted}
    order = sorted(wanted, key=lambda n: (-float(masses[n].amax()), n))
    rest = _tails([masses[n] for n in order])
    total, read = known or asking.nothing(), 0
    if known is None or not rest or not _little(rest[0], total.lse, epsilon):
        for piece in ahead(source, order):
            part = contribution(asking, piece)
            if heed is not None:
                heed(order[read], part)
            total = merge(total, part)
            read += 1
            if read < len(order) and _little(rest[read], total.lse, epsilon):
                break
    return _certified(total, order, read, rest, boxes, queries.shape[1])


def _tails(masses: Sequence[Any]) -> list[Any]:
    """For each place in the order: the logarithm of the most that it and all behind it can hold."""
    tails: list[Any] = []
    for mass in reversed(masses):
        tails.append(mass if not tails else torch.logaddexp(mass, tails[-1]))
    return tails[::-1]


def _little(rest: Any, lse: Any, epsilon: float) -> bool:
    return epsilon > 0.0 and bool((_share(rest, lse) <= epsilon).all())


def _share(rest: Any, lse: Any) -> Any:
    """rest / (rest + sum), of logarithms."""
    return torch.sigmoid(rest - lse.float())


def _certified(
    total: Partial,
    order: Sequence[int],
    read: int,
    rest: Sequence[Any],
    boxes: Sequence[Box],
    heads: int,
) -> Certified:
    skipped = tuple(order[read:])
    if not skipped:
        zero = torch.zeros_like(total.lse, dtype=torch.float32)
        return Certified(total, zero, zero, ())
    share = _share(rest[read], total.lse)
    values = torch.stack([boxes[n].value for n in skipped]).amax(dim=0)
    values = values.repeat_interleave(heads // values.shape[1], dim=1).unsqueeze(-1)
    kept = total.out.float().abs().amax(dim=-1)
    return Certified(total, share, share * (values + kept), skipped)
