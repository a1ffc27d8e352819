"""Stock models twice, with the cache of transformers and with an OnggiCache."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

import torch
import transformers

from onggi_library.transformers import OnggiCache

VOCABULARY = 97
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**COMMON, "num_key_value_heads": 2}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=16),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=40),
    "gemma2": lambda: transformers.Gemma2Config(
        **GROUPED, head_dim=8, sliding_window=40, attn_logit_softcapping=3.0
    ),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **GROUPED,
        head_dim=8,
        sliding_window=40,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**COMMON),
    "phi": lambda: transformers.PhiConfig(**COMMON),
    "phi3": lambda: transformers.Phi3Config(**GROUPED, sliding_window=40),
    "olmo2": lambda: transformers.Olmo2Config(**GROUPED),
    "starcoder2": lambda: transformers.Starcoder2Config(**GROUPED),
    "mixtral": lambda: transformers.MixtralConfig(**GROUPED, num_local_experts=2),
    "cohere2": lambda: transformers.Cohere2Config(
        **GROUPED,
        sliding_window=40,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
}
BLOCK = 16
NEAR = 2e-5


def pair(family: str) -> tuple[Any, Any]:
    """The same weights twice: with the eager attention and cache of transformers, and with ours."""
    torch.manual_seed(7)
    config = FAMILIES[family]()
    stock = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    stock.eval()
    for parameter in stock.parameters():  # so that attention is not all but uniform
        parameter.data.mul_(3.0 if parameter.dim() > 1 else 1.0)
    ours = transformers.AutoModelForCausalLM.from_config(
        FAMILIES[family](), attn_implementation="onggi"
    )
    ours.load_state_dict(stock.state_dict())
    return stock, ours.eval()


def row_bytes(model: Any) -> int:
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * heads * size * 4


def cache_for(of: Any, socket: str | PathLike[str], batch: int = 1, **settings: Any) -> OnggiCache:
    """One whose device budget is 14 blocks a sequence: 75 tokens a layer."""
    given = {"device_bytes": 14 * BLOCK * row_bytes(of) * batch, "sinks": BLOCK, "recent": BLOCK}
    given |= {"block_tokens": BLOCK, "socket": socket, "model": "tiny", **settings}
    return OnggiCache(of.config, **given)


def prompt(batch: int = 1, length: int = 300) -> Any:
    generator = torch.Generator().manual_seed(11)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def generated(model: Any, ids: Any, cache: Any, **how: Any) -> tuple[Any, Any]:
    """Tokens and, of each step, logits."""
    torch.manual_seed(3)
    mask = how.pop("attention_mask", torch.ones_like(ids))
    found = model.generate(
        ids,
        attention_mask=mask,
        past_key_values=cache,
        max_new_tokens=12,
        min_new_tokens=12,
        return_dict_in_generate=True,
        output_logits=True,
        **{"do_sample": False, **how},
    )
    return found.sequences, torch.stack(found.logits)


def check_alike(family: str, socket: str | PathLike[str], ids: Any, **how: Any) -> OnggiCache:
    stock, ours = pair(family)
    beams = how.get("num_beams", 1)
    tokens, logits = generated(stock, ids, None, **how)
    with cache_for(ours, socket, ids.shape[0] * beams) as cache:
        our_tokens, our_logits = generated(ours, ids, cache, **how)
        report = cache.report()
    assert torch.equal(tokens, our_tokens)
    near = NEAR * max(1.0, float(logits.abs().max()))
    assert float((logits - our_logits).abs().max()) <= near
    assert report.device_bytes_peak <= report.device_budget_bytes
    return cache
