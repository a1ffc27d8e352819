"""A real Llama of the transformers library, small, with weights made from a seed.

Nothing is downloaded. The same seed gives the same weights and the same prompt in every process,
which is what a restarted engine with the same checkpoint sees.
"""

from __future__ import annotations

from typing import Final

import torch
import transformers
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

SEED: Final = 20_240_229
DTYPE: Final = torch.float32
VOCABULARY: Final = 4096

INITIALIZER_RANGE: Final = 0.08
"""Four times the usual: with 0.02 an untrained model says the same token for ever, and a check
that all runs say the same would be worth little."""


def make_config(layers: int, prompt_tokens: int) -> LlamaConfig:
    """A few layers of the usual proportions, with grouped keys and values as current models have:
    2 KiB of KV cache per token and layer."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=max(8192, 2 * prompt_tokens),
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=None,
    )


def make_model(config: LlamaConfig) -> LlamaForCausalLM:
    torch.manual_seed(SEED)
    return LlamaForCausalLM(config).to(DTYPE).eval()


def make_prompt(tokens: int) -> list[int]:
    dice = torch.Generator().manual_seed(SEED + 1)
    ids: list[int] = torch.randint(0, VOCABULARY, (tokens,), generator=dice).tolist()
    return ids


def identity(config: LlamaConfig, block_tokens: int) -> dict[str, str | int]:
    """Everything that shapes the bytes of a page. The number of threads and the instruction set
    are in it, since both change how sums are split and so their last bits."""
    return {
        "model": "examples/tiny-llama",
        "seed": SEED,
        "initializer_range": str(config.initializer_range),
        "vocabulary": config.vocab_size,
        "hidden": config.hidden_size,
        "intermediate": config.intermediate_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "positions": config.max_position_embeddings,
        "dtype": str(DTYPE),
        "layout": "layer,kv,head,token,dim",
        "block_tokens": block_tokens,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }
