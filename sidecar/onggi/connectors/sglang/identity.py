"""What shapes the bytes of a page of this pool and rank: the fields of its fingerprint, in one
place. SGLang's own keys name tokens only, no model, rank or type.

A field too many is a miss after a change that was harmless; a field too few is a wrong answer.
Ports, log levels, sizes of pools and sampling defaults are not here on purpose. Nor are the ranks
of attention's data parallelism: replicas compute the same pages, and share them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Final

from onggi.connectors.sglang.options import Options
from onggi.connectors.sglang.pages import page_tokens
from onggi.connectors.weights import revision

Fields = dict[str, "str | int"]

LAYOUT_VERSION: Final = 1
"""Of our own page: the pool's pieces in its order. To be raised with pages.py."""

_ARGUMENTS: Final = (
    "dtype",
    "kv_cache_dtype",
    "quantization",
    "quantization_param_path",
    "json_model_override_args",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "load_format",
    "model_impl",
    "weight_version",
    "speculative_algorithm",
    "speculative_draft_model_path",
)
"""Of the engine's own arguments, by name. One that a version does not have is written as None."""


def fields(
    name: str,
    host: Any,
    config: Any,
    options: Options,
    *,
    arguments: Any,
    engine_version: str,
    form: str,
    sizes: Sequence[int],
) -> Fields:
    """name: of the pool. config: HiCacheStorageConfig. arguments: the engine's, None where they
    cannot be had. form: pieces or flat. sizes: bytes of a page's pieces, in their order.
    Raises WeightsUnknown (weights.py), OSError for unreadable weights."""
    model = str(getattr(arguments, "model_path", None) or config.model_name or "")
    found: Fields = {
        "engine": "sglang",
        "engine_version": engine_version,
        "model": os.path.basename(model) if os.path.exists(model) else model,
        "weights": _weights(model, getattr(arguments, "revision", None), options.revision),
        "draft_weights": _draft(arguments, options),
        "adapters": _adapters(arguments, options),
        "format": str(getattr(host, "storage_format_tag", None)),
        "pool": name,
        "pool_class": type(host).__name__,
        "layout": str(getattr(host, "layout", "")),
        "pool_dtype": str(getattr(host, "dtype", "")),
        "layers": f"{getattr(host, 'start_layer', 0)}-{getattr(host, 'end_layer', 0)}",
        "layer_num": int(getattr(host, "layer_num", 0) or 0),
        "page_tokens": page_tokens(host),
        "page_layout": LAYOUT_VERSION,
        "form": form,
        "pieces": ",".join(map(str, sizes)),
        "tenant": options.tenant,
        **_ranks(config, replicated=replicated(host, config)),
    }
    for argument in _ARGUMENTS:
        found[argument] = str(getattr(arguments, argument, None))
    if str(getattr(arguments, "load_format", "")) == "dummy":
        found["random_seed"] = str(getattr(arguments, "random_seed", None))
    return found


def replicated(host: Any, config: Any) -> bool:
    """Whether all ranks of tensor parallelism hold the same pages, of which one writes for all: the
    latent of MLA models, and not what such a model keeps by heads beside it."""
    kinds = {kind.__name__ for kind in type(host).__mro__}
    by_heads = any("MHA" in kind or "Mamba" in kind for kind in kinds)
    return bool(config.is_mla_model) and not by_heads


def _ranks(config: Any, *, replicated: bool) -> Fields:
    ranks: Fields = {
        "pp_rank": config.pp_rank,
        "pp_size": config.pp_size,
        "cp_rank": config.attn_cp_rank,
        "cp_size": config.attn_cp_size,
        "dcp_rank": getattr(config, "dcp_rank", 0),
        "dcp_size": getattr(config, "dcp_size", 1),
    }
    if not replicated:
        ranks |= {"tp_rank": config.tp_rank, "tp_size": config.tp_size}
    return ranks


def _weights(model: str, wanted: str | None, declared: str) -> str:
    return revision(model, None if declared else _hub_commit(model, wanted), declared)


def _draft(arguments: Any, options: Options) -> str:
    """Of the model that drafts: its pages lie in pools of their own, or beside the model's."""
    path = getattr(arguments, "speculative_draft_model_path", None)
    if not path:
        return ""
    wanted = getattr(arguments, "speculative_draft_model_revision", None)
    return _weights(str(path), wanted, options.revision)


def _adapters(arguments: Any, options: Options) -> str:
    """Of the adapters named at start, whose ids in SGLang's keys are made of name and path: files
    that were trained anew under the same path must not find the old ones' pages. Those that are
    loaded later have random ids."""
    listed = getattr(arguments, "lora_paths", None) or ()
    pairs = listed.items() if isinstance(listed, dict) else [_adapter(one) for one in listed]
    digest = hashlib.sha256()
    for name, path in sorted((str(name), str(path)) for name, path in pairs):
        declared = "" if os.path.exists(path) else options.revision
        digest.update(f"{name}\0{path}\0{_weights(path, None, declared)}\0".encode())
    return digest.hexdigest()[:32] if listed else ""


def _adapter(one: Any) -> tuple[Any, Any]:
    """As SGLang takes them: an object, a mapping, NAME=PATH, or a path."""
    if isinstance(one, str):
        name, _, path = one.rpartition("=")
        return name or path, path
    if isinstance(one, dict):
        return one.get("lora_name"), one.get("lora_path")
    return getattr(one, "lora_name", one), getattr(one, "lora_path", one)


def _hub_commit(model: str, wanted: str | None) -> str | None:
    """Commit of the files that were fetched from the hub; the cache names their folder by it."""
    if os.path.exists(model):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        files = [
            try_to_load_from_cache(model, name, revision=wanted)
            for name in ("config.json", "adapter_config.json")
        ]
    except (ImportError, ValueError):
        return None
    for file in files:
        parts = file.split(os.sep) if isinstance(file, str) else []
        if "snapshots" in parts:
            return str(parts[parts.index("snapshots") + 1])
    return None
