"""What shapes the bytes of a page of this worker: the fields of its fingerprint, in one place.

A field too many is a miss after a change that was harmless; a field too few is a wrong answer.
Ports, names of pods, log levels, memory shares and sampling defaults are not here on purpose.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onggi.connectors.vllm.drafts import drafter
from onggi.connectors.vllm.hybrid.kinds import Kind, StandBack, layer_specs
from onggi.connectors.vllm.options import Options
from onggi.connectors.weights import WeightsUnknown, revision

Fields = dict[str, "str | int"]

LAYOUT_VERSION: Final = 1
"""Of our own page: layer after layer, as the engine has them. To be raised with layout.py."""

_NOT_SHAPING: Final = frozenset(
    {"_name_or_path", "transformers_version", "architectures", "use_cache", "torch_dtype", "dtype"}
)
"""Of the model's own configuration. The name and the dtype have fields of their own."""


def check_supported(vllm_config: Any) -> None:
    """Raises StandBack for what pages of whole blocks cannot carry, or not yet."""
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise StandBack(f"{name} is {getattr(parallel, name)}; Onggi keeps blocks only with 1")
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise StandBack(
            "calculate_kv_scales is on: the scales come from the first requests, so the same "
            "tokens have other bytes in the next run"
        )
    scheduler = getattr(vllm_config, "scheduler_config", None)
    by_parts = getattr(scheduler, "enable_chunked_prefill", True)
    if not by_parts and not getattr(vllm_config.cache_config, "enable_prefix_caching", True):
        # As vLLM itself sets both for kernels that would answer wrong tokens: its reference for
        # latent attention on a CPU without AMX is one.
        raise StandBack(
            "enable_chunked_prefill and enable_prefix_caching are off: this engine computes "
            "prompts whole, and may not be able to go on from blocks that it is given"
        )


def identity(
    vllm_config: Any,
    kv_cache_config: Any,
    kind: Kind,
    options: Options,
    *,
    engine_version: str,
    tp_rank: int,
    pp_rank: int,
    backend: str,
    isa: str,
    page_bytes: int,
) -> Fields:
    """The fields for one kind of pages. backend: attention backends of the layers. isa: of the
    CPU backend's bytes, empty on other devices. Raises WeightsUnknown (weights.py), OSError for
    unreadable weights."""
    model, cache, parallel = (
        vllm_config.model_config,
        vllm_config.cache_config,
        vllm_config.parallel_config,
    )
    groups = [kv_cache_config.kv_cache_groups[number] for number in kind.groups]
    layers = [name for group in groups for name in group.layer_names]
    spec = layer_specs(groups[0].kv_cache_spec)[0]
    hf = _plain(getattr(model, "hf_config", None))
    commit = getattr(getattr(model, "hf_config", None), "_commit_hash", None)
    fields: Fields = {
        "model": model.model if not os.path.exists(model.model) else os.path.basename(model.model),
        "weights": revision(model.model, commit, options.revision),
        "config": _digest({k: v for k, v in hf.items() if k not in _NOT_SHAPING}),
        "rope": _digest({k: v for k, v in _flat(hf).items() if "rope" in k}),
        "dtype": str(model.dtype),
        "kv_dtype": str(cache.cache_dtype),
        "kv_spec_dtype": str(getattr(spec, "dtype", "")),
        "quantization": str(getattr(model, "quantization", None)),
        "layout": str(kv_cache_config.kv_cache_layout or cache.kv_cache_layout or ""),
        "page_layout": LAYOUT_VERSION,
        "block_tokens": int(spec.block_size),
        "layers": len(layers),
        "layer_names": _digest(layers),
        "heads": int(getattr(spec, "num_kv_heads", 0)),
        "head_size": int(getattr(spec, "head_size", 0)),
        "spec": type(spec).__name__,
        "page_bytes": page_bytes,
        "tp_size": int(parallel.tensor_parallel_size),
        "tp_rank": tp_rank,
        "pp_size": int(parallel.pipeline_parallel_size),
        "pp_rank": pp_rank,
        "engine": "vllm",
        "engine_version": engine_version,
        "backend": backend,
        "isa": isa,
        "tenant": options.tenant,
    }
    load_format = str(getattr(getattr(vllm_config, "load_config", None), "load_format", ""))
    if load_format == "dummy":
        fields["random_weights_seed"] = int(getattr(model, "seed", 0) or 0)
    if len(groups) > 1 or not kind.needs_all:
        fields["window"] = f"{kind.reach} {kind.chunk}"
        fields["groups"] = _digest([f"{g.layer_names} {g.kv_cache_spec}" for g in groups])
    return fields | _of_drafter(vllm_config, options, str(fields["weights"]))


_SAME_FOR_ANY_NUMBER: Final = frozenset({"eagle", "eagle3", "draft_model"})
"""Methods whose layers write the same however many tokens they draft; others may not."""


def _of_drafter(vllm_config: Any, options: Options, weights: str) -> Fields:
    """Fields of what drafts, where its layers lie in the pages too. weights: of the model that it
    drafts for, and its own where it is a part of that one."""
    speculative = drafter(vllm_config)
    if speculative is None:
        return {}
    draft = speculative.draft_model_config
    if draft.model != vllm_config.model_config.model:
        commit = getattr(getattr(draft, "hf_config", None), "_commit_hash", None)
        try:  # the user's word is on the model, and stands for both where nothing else is known
            weights = revision(draft.model, commit, "")
        except WeightsUnknown:
            weights = revision(draft.model, commit, options.revision)
    fields: Fields = {
        "drafter": str(speculative.method),
        "drafter_weights": weights,
        "drafter_quantization": str(getattr(draft, "quantization", None)),
    }
    if speculative.method not in _SAME_FOR_ANY_NUMBER:
        fields["drafts"] = int(speculative.num_speculative_tokens)
    return fields


def cpu_isa(spec: Any, dtype: Any, kv_dtype: str) -> str:
    """What the CPU backend packs its pages for: shapes are equal, bytes are not."""
    try:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
    except ImportError:
        return f"{platform.machine()}-unknown"
    isa = _get_attn_isa(dtype, spec.block_size, spec.head_size, kv_dtype)
    return f"{platform.machine()}-{isa}"


def _plain(hf_config: Any) -> dict[str, Any]:
    if hf_config is None:
        return {}
    plain = hf_config.to_dict()
    return plain if isinstance(plain, dict) else {}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _digest(value: Mapping[str, Any] | Sequence[str]) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
