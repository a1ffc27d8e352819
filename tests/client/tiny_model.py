"""Writes a tiny model with random weights: `python tiny_model.py FOLDER SEED [FAMILY]`.

The family `adapter` is a LoRA adapter for `grouped`, `head` an EAGLE head for `shallow`. `hearing`
comes with what makes its inputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
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


def latent(transformers: Any) -> Any:
    """Multi-head latent attention: one head of compressed keys and values, of the only size that
    vLLM's kernel for CPUs knows."""
    config = transformers.DeepseekV2Config(
        **COMMON,
        num_key_value_heads=4,
        kv_lora_rank=512,
        q_lora_rank=None,
        qk_nope_head_dim=64,
        qk_rope_head_dim=64,
        v_head_dim=64,
        first_k_dense_replace=4,  # no layer has experts
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        n_group=1,
        topk_group=1,
    )
    return transformers.DeepseekV2ForCausalLM(config)


def shallow(transformers: Any) -> Any:
    """Only its last layer changes anything, so that a head with one layer can guess what it says.
    Embeddings have the size that a norm would give them, which the head's layer goes without."""
    import torch

    model = grouped(transformers)
    for layer in model.model.layers[:-1]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    words = model.model.embed_tokens.weight.data
    words /= words.pow(2).mean(-1, keepdim=True).sqrt()
    return model


SOUND_TOKEN = 511


def hearing(transformers: Any) -> Any:
    """Hears: a sound takes the place of its mark, 25 tokens a second."""
    ear = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64}
    config = transformers.Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **ear},
        text_config={"model_type": "qwen2", **COMMON, "num_key_value_heads": 2},
        audio_token_index=SOUND_TOKEN,
    )
    model = transformers.Qwen2AudioForConditionalGeneration(config)
    for name, weights in model.named_parameters():
        if "language_model" not in name and "embed_positions" not in name and weights.dim() > 1:
            weights.data *= 10  # so that what it hears changes what it says
    return model


def write_processor(transformers: Any, folder: str) -> None:
    """What makes a hearing model's inputs."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    marks = ["<|audio_bos|>", "<|audio_eos|>", "<|AUDIO|>"]
    words = [f"w{n}" for n in range(COMMON["vocab_size"] - len(marks))] + marks
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.Qwen2AudioProcessor(
        transformers.WhisperFeatureExtractor(feature_size=128),
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token="w0", additional_special_tokens=marks
        ),
    ).save_pretrained(folder)


def put_names_right(folder: str) -> None:
    """transformers saves a hearing model's words one level deeper than it, or vLLM, loads them."""
    import safetensors.torch

    file = Path(folder, "model.safetensors")
    weights = safetensors.torch.load_file(file)
    right = {name.replace("model.model.", "model."): one for name, one in weights.items()}
    safetensors.torch.save_file(right, file, metadata={"format": "pt"})


FAMILIES = {one.__name__: one for one in (grouped, plain, window, hybrid, latent, shallow, hearing)}

RANK = 8


def write_adapter(folder: str) -> None:
    """Random changes to the queries and values of all layers."""
    import safetensors.torch
    import torch

    width, parts = COMMON["hidden_size"], {"q_proj": 256, "v_proj": 128}
    weights = {}
    for layer in range(COMMON["num_hidden_layers"]):
        for part, out in parts.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, width) * 0.2
            weights[f"{name}.lora_B.weight"] = torch.randn(out, RANK) * 0.2
    Path(folder).mkdir(parents=True)
    safetensors.torch.save_file(weights, Path(folder, "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": list(parts)}
    Path(folder, "adapter_config.json").write_text(json.dumps(config))


def write_head(transformers: Any, folder: str) -> None:
    """It reads the next word, not what the model made of the last ones, and has the model's last
    layer: what it guesses is nearly what the model will say."""
    import safetensors.torch
    import torch

    model = shallow(transformers)
    last = f"model.layers.{COMMON['num_hidden_layers'] - 1}."
    width = COMMON["hidden_size"]
    weights = {
        name.replace(last, "layers.0."): one.to(torch.bfloat16).contiguous()
        for name, one in model.state_dict().items()
        if name.startswith(last) and "input_layernorm" not in name
    }
    weights["fc.weight"] = torch.cat([torch.eye(width), torch.zeros(width, width)], 1)
    Path(folder).mkdir(parents=True)
    safetensors.torch.save_file(weights, Path(folder, "model.safetensors"))
    config = model.config.to_dict() | {"num_hidden_layers": 1}
    config["architectures"] = ["LlamaForCausalLM"]
    Path(folder, "config.json").write_text(json.dumps(config))


def main(folder: str, seed: str, family: str = "grouped") -> None:
    import torch

    torch.manual_seed(int(seed))
    if family == "adapter":
        write_adapter(folder)
        return
    import transformers

    if family == "head":
        write_head(transformers, folder)
        return

    FAMILIES[family](transformers).to(torch.bfloat16).save_pretrained(folder)
    if family == "hearing":
        write_processor(transformers, folder)
        put_names_right(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
