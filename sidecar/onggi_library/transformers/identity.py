"""Whose keys and values were saved: they fit one model, and prompts that begin alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

_NOT_SHAPING: Final = {
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "pad_token_id",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
"""Fields of a configuration that change no key and no value. The dtype is the cache's own."""


def model_fields(config: Any, model: str) -> dict[str, str | int]:
    """What must be equal for what was saved to be used. model: which weights. Raises ValueError if
    nobody says."""
    name = model or getattr(config, "name_or_path", "")
    if not name:
        raise ValueError(
            "this model's configuration has no name, and weights differ where configurations do "
            'not; say which they are: OnggiCache(config, model="...", ...)'
        )
    shape = {key: value for key, value in config.to_dict().items() if key not in _NOT_SHAPING}
    text = json.dumps(shape, sort_keys=True, default=str)
    return {
        "model": name,
        "model_type": str(config.model_type),
        "config": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def common(saved: Sequence[Sequence[int]], asked: Sequence[Sequence[int]]) -> int:
    """How many tokens all sequences begin alike with."""
    return min(
        (
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
            for old, new in zip(saved, asked, strict=True)
        ),
        default=0,
    )
