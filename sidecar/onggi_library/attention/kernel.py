"""Attention of some queries to one piece of keys, with the logarithm of the sum of exponentials.

On the CPU torch's own flash kernel gives both. Elsewhere both are computed from the scores, which
costs memory for queries times keys of one piece and is right on every device.
"""

from __future__ import annotations

from typing import Any

import torch

from onggi_library.attention.partial import Partial, accumulator_of

_FLASH_CPU = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_FLASH_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attend(
    queries: Any,
    keys: Any,
    values: Any,
    *,
    scale: float,
    mask: Any = None,
    softcap: float | None = None,
) -> Partial:
    """What one piece contributes.

    queries [batch, heads, queries, head size]; keys and values [batch, kv heads, length, size],
    heads a multiple of kv heads; mask: None, or bool [batch or 1, heads or 1, queries, length],
    True where a key is seen. Query head h reads kv head h // (heads // kv heads). softcap: see
    `Asking`.
    """
    batch, heads, count, _ = queries.shape
    kv_heads, value_size = keys.shape[1], values.shape[-1]
    group = heads // kv_heads
    folded = queries.reshape(batch, kv_heads, group * count, queries.shape[-1])
    seen = None if mask is None else _fold_mask(mask, kv_heads, group)
    bias = None if seen is None else _bias(seen, queries.dtype)
    if softcap is None and flash_takes(queries, keys, values):
        out, lse = _flash(folded, keys, values, scale, bias)
    else:
        out, lse = _from_scores(folded, keys, values, scale, bias, softcap)
    if seen is not None:
        # what a kernel writes where a query sees no key differs between kernels and versions
        blind = ~seen.any(dim=-1)
        out, lse = out.masked_fill(blind.unsqueeze(-1), 0.0), lse.masked_fill(blind, float("-inf"))
    return Partial(out.reshape(batch, heads, count, value_size), lse.reshape(batch, heads, count))


def flash_takes(queries: Any, keys: Any, values: Any) -> bool:
    """Whether the kernel that needs no memory for scores can be used."""
    return (
        _FLASH_CPU is not None
        and queries.device.type == "cpu"
        and queries.dtype in _FLASH_DTYPES
        and queries.dtype == keys.dtype == values.dtype
        and keys.shape[-1] == values.shape[-1]
    )


def _flash(queries: Any, keys: Any, values: Any, scale: float, bias: Any) -> tuple[Any, Any]:
    assert _FLASH_CPU is not None
    out, lse = _FLASH_CPU(queries, keys, values, attn_mask=bias, scale=scale)
    kind = accumulator_of(queries.dtype)
    return out.to(kind), lse.to(kind)


def _from_scores(
    queries: Any, keys: Any, values: Any, scale: float, bias: Any, softcap: float | None
) -> tuple[Any, Any]:
    kind = accumulator_of(queries.dtype)
    scores = queries.to(kind) @ keys.to(kind).transpose(-1, -2) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + bias.to(kind)
    lse = torch.logsumexp(scores, dim=-1)
    return torch.softmax(scores, dim=-1) @ values.to(kind), lse


def _fold_mask(mask: Any, kv_heads: int, group: int) -> Any:
    """The mask for queries whose heads of one group lie one behind another."""
    batch, heads, count, length = mask.shape
    if heads == 1:
        shaped = mask.unsqueeze(2).expand(batch, 1, group, count, length)
    else:
        shaped = mask.reshape(batch, kv_heads, group, count, length)
    return shaped.reshape(batch, shaped.shape[1], group * count, length)


def _bias(mask: Any, dtype: Any) -> Any:
    """0 where a key is seen, -inf where not."""
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, float("-inf"))
