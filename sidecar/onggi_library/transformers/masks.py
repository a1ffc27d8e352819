"""Masks of transformers, said as rules: a mask of all queries and all keys would not fit either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers.masking_utils import causal_mask_function, sdpa_mask

from onggi_library.attention.piece import Span
from onggi_library.attention.tiles import Seen, seen_of
from onggi_library.attention.visible import Visibility


@dataclass(frozen=True)
class Rule:
    """Which keys the queries of one forward pass see. queries: where they stand; first_key: where
    the keys begin that the model's cache gives."""

    queries: Span
    first_key: int
    visible: Visibility
    seen: Seen | None


def onggi_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Any = None,
    use_vmap: bool = False,  # noqa: FBT001, FBT002  transformers names the arguments
    device: Any = "cpu",
    **_: Any,
) -> Rule:
    """What transformers calls in place of making a mask; its arguments. Raises ValueError for a
    padding mask of another length than what is attended to."""
    at, whole = Span(int(q_offset), q_length), kv_length + kv_offset
    if attention_mask is not None and attention_mask.shape[-1] != whole:
        raise ValueError(
            f"attention_mask is for {attention_mask.shape[-1]} tokens, but the cache has "
            f"{at.start} and {q_length} are fed: together {whole}. If the cache already has a part "
            "of the prompt, feed the rest of it alone, without prefill_chunk_size, and at least "
            "its last token"
        )
    visible = _by_position(mask_function)
    if visible is not None:
        return Rule(at, kv_offset, visible, _padding(attention_mask, device))

    def seen(queries: Span, keys: Span) -> Any:
        return sdpa_mask(
            batch_size,
            queries.length,
            keys.length,
            q_offset=queries.start,
            kv_offset=keys.start,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )

    return Rule(at, kv_offset, Visibility(causal=False), seen)


def given_rule(mask: Any, at: Span, *, causal: bool, window: int | None) -> Rule:
    """The rule for what a model hands to its attention: a Rule, nothing, or a mask of its own
    [batch, heads or 1, queries, keys]. Raises ValueError for one that does more than hide keys."""
    if isinstance(mask, Rule):
        return mask
    if mask is None:
        return Rule(at, 0, Visibility(causal, window), None)
    if mask.dtype != torch.bool:
        seen = mask == 0
        if not bool((mask[~seen] <= torch.finfo(mask.dtype).min / 2).all()):
            raise ValueError(
                'attention_mask adds to scores; attention "onggi" takes masks that hide keys: '
                "bool, or 0 and the dtype's least number"
            )
        mask = seen
    return Rule(at, 0, Visibility(causal=False), seen_of(mask)(at))


def _by_position(mask_function: Any) -> Visibility | None:
    """The rule of a mask function of transformers' own that is causal, with or without a sliding
    window; None for any other, which is asked tile by tile."""
    if mask_function is causal_mask_function:
        return Visibility()
    code = getattr(mask_function, "__code__", None)
    cells = getattr(mask_function, "__closure__", None) or ()
    parts = dict(zip(code.co_freevars, cells, strict=True)).get("mask_functions") if code else None
    if parts is None or len(parts.cell_contents) != 2:
        return None
    others = [part for part in parts.cell_contents if part is not causal_mask_function]
    if len(others) != 1 or not others[0].__qualname__.startswith("sliding_window_overlay."):
        return None
    (window,) = [cell.cell_contents for cell in others[0].__closure__ or ()]
    return Visibility(window=window)


def _padding(attention_mask: Any, device: Any) -> Seen | None:
    """attention_mask: bool [batch, keys], or None."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    mask = attention_mask.to(device=device, dtype=torch.bool)

    def seen(_queries: Span, keys: Span) -> Any:
        part = mask[:, None, None, keys.start : keys.end]
        return None if bool(part.all()) else part

    return seen
