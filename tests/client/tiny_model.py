"""Writes a tiny model with random weights: `python tiny_model.py FOLDER SEED [FAMILY]`."""

from __future__ import annotations

import sys
from typing import Any

COMMON = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,  # large enough that the next token depends on the whole prompt
}
WINDOW = 96
"""Three blocks of 32 tokens: less than most prompts of the tests."""


def grouped(transformers: Any) -> Any:
    """Two query heads for each head of keys and values."""
    config = transformers.LlamaConfig(**COMMON, num_key_value_heads=2, head_dim=64)
    return transformers.LlamaForCausalLM(config)


def plain(transformers: Any) -> Any:
    config = transformers.LlamaConfig(**COMMON, num_key_value_heads=4, head_dim=64)
    return transformers.LlamaForCausalLM(config)


def window(transformers: Any) -> Any:
    """Every layer sees a window."""
    more = {"num_key_value_heads": 2, "head_dim": 64, "sliding_window": WINDOW}
    return transformers.MistralForCausalLM(transformers.MistralConfig(**COMMON, **more))


def hybrid(transformers: Any) -> Any:
    """Two layers of three see a window, the third one all tokens: three groups of blocks."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    more = {"num_key_value_heads": 2, "head_dim": 64, "sliding_window": WINDOW}
    config = transformers.Gemma3TextConfig(
        **{**COMMON, "num_hidden_layers": len(kinds)}, **more, layer_types=kinds
    )
    return transformers.Gemma3ForCausalLM(config)


FAMILIES = {one.__name__: one for one in (grouped, plain, window, hybrid)}


def main(folder: str, seed: str, family: str = "grouped") -> None:
    import torch
    import transformers

    torch.manual_seed(int(seed))
    FAMILIES[family](transformers).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
