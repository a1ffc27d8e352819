"""The attention function that transformers calls under the name "onggi"."""

from __future__ import annotations

from typing import Any, Final

from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.tiles import Asking, contribution
from onggi_library.context.context import TieredContext
from onggi_library.transformers.handle import FOLLOW, had, is_handle
from onggi_library.transformers.masks import given_rule, onggi_mask

NAME: Final = "onggi"
REFUSED: Final = {
    "position_bias": "a bias by position is added to its scores",
    "s_aux": "it has learned sinks",
    "head_mask": "it masks heads",
}
"""Arguments that change the result and that are not carried out, with what is then wrong."""


def register() -> None:
    """Make the name known, with its masks: without them transformers would hand in none, and
    padding would be attended to."""
    AttentionInterface.register(NAME, onggi_attention)
    AttentionMaskInterface.register(NAME, onggi_mask)


def onggi_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    is_causal: Any = None,
    **others: Any,
) -> tuple[Any, None]:
    """query [batch, heads, tokens, size]; key and value: what an OnggiCache gave, or tensors.
    Returns [batch, tokens, heads, size]. Raises ValueError for a model it is not exact for."""
    _check_carried_out(others, dropout)
    causal = getattr(module, "is_causal", True) if is_causal is None else bool(is_causal)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    count = query.shape[2]
    total = key.context.length(key.layer) if is_handle(key) else key.shape[2]
    at = Span(total - count, count)
    rule = given_rule(attention_mask, at, causal=causal, window=sliding_window)
    if is_handle(key):
        if rule.queries != at:
            raise RuntimeError(
                f"layer {key.layer} has {total} tokens, but its mask is for queries from "
                f"{rule.queries.start} to {rule.queries.end}: layers were not fed alike"
            )
        if key.layer == 0 and rule.seen is None:
            _check_places(key.context, at, others.get("position_ids"))
        out = key.context.attend(
            key.layer, query, scale=scale, visible=rule.visible, seen=rule.seen, softcap=softcap
        )
    else:
        asking = Asking(
            query, rule.queries, value.shape[-1], scale, rule.visible, rule.seen, softcap
        )
        piece = Piece(Span(rule.first_key, key.shape[2]), key, value)
        out = contribution(asking, piece).out.to(query.dtype)
    return out.transpose(1, 2).contiguous(), None


def _check_carried_out(others: dict[str, Any], dropout: float) -> None:
    """Raises ValueError for what was asked for and would be left out."""
    for name, why in REFUSED.items():
        given = others.get(name)
        if given is not None and given is not False:
            raise ValueError(f'attention "{NAME}" cannot be exact for this model: {why} ({name})')
    if others.get("output_attentions"):
        raise ValueError(
            f'output_attentions is {others["output_attentions"]}: attention "{NAME}" is computed '
            "piece by piece and has no weights to hand out; leave output_attentions out"
        )
    if dropout > 0.0:
        raise ValueError(f'dropout is {dropout}: attention "{NAME}" is for inference, with 0')


def _check_places(context: TieredContext, at: Span, position_ids: Any) -> None:
    """Queries without padding stand behind what the cache has. `generate` feeds a prompt again, or
    a part of it, if the cache has more tokens than it was handed; what came of it is taken back.
    Raises ValueError."""
    if getattr(position_ids, "ndim", 0) != 2 or not position_ids.shape[1]:
        return
    first = int(position_ids[:, 0].min())
    if first < at.start:
        context.crop(at.start)
        raise ValueError(f"{had(at.start)}, and what is fed stands at position {first}: {FOLLOW}")
