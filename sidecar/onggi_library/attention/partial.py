"""What some of the keys contribute to attention, so that contributions can be merged.

A softmax over all keys is the mean of the softmaxes over parts of them, each weighted by its sum
of exponentials: so one part needs to leave nothing but its output and the logarithm of that sum
(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; merged by parts as in
Dao et al., "FlashAttention", 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Partial:
    """out [batch, heads, queries, value size] and lse [batch, heads, queries], both of the
    accumulator's dtype. A query that saw no key has an lse of -inf and an out of zeros."""

    out: Any
    lse: Any


def accumulator_of(dtype: Any) -> Any:
    """The dtype that sums are kept in: float64 for itself, float32 for all that is smaller."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def nothing(queries: Any, value_size: int) -> Partial:
    """The contribution of no keys; the neutral element of `merge`."""
    batch, heads, count, _ = queries.shape
    kind = {"dtype": accumulator_of(queries.dtype), "device": queries.device}
    return Partial(
        torch.zeros(batch, heads, count, value_size, **kind),
        torch.full((batch, heads, count), float("-inf"), **kind),
    )


def merge(one: Partial, other: Partial) -> Partial:
    """The contribution of the keys of both. The order of merging changes no more than rounding."""
    lse = torch.logaddexp(one.lse, other.lse)
    # where neither saw a key, lse is -inf and -inf - -inf is no number
    base = lse.masked_fill(lse == float("-inf"), 0.0)
    weigh_one = torch.exp(one.lse - base).unsqueeze(-1)
    weigh_other = torch.exp(other.lse - base).unsqueeze(-1)
    return Partial(one.out * weigh_one + other.out * weigh_other, lse)
