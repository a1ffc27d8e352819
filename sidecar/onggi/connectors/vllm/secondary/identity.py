"""What shapes the bytes of a chunk in vLLM's host memory, and which set-ups are not kept.

A chunk is a row of that memory: the blocks of all ranks, as the engine has them. So its fields are
those of the connector's own pages, for all kinds of blocks together, and those of the row.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from onggi.connectors.vllm.hybrid.kinds import StandBack, kinds_of, layer_specs
from onggi.connectors.vllm.identity import Fields, check_supported, cpu_isa, identity
from onggi.connectors.vllm.options import Options
from onggi.connectors.vllm.secondary.engine import Engine

ROW_VERSION: Final = 1
"""Of our own use of a row. To be raised with moves.py."""

RANDOM_HASHES: Final = ("xxhash", "xxhash_cbor")
"""Hashes that vLLM seeds anew in each process, unless PYTHONHASHSEED says with what."""


def check_engine(engine: Engine | None, hash_seed: str | None) -> Engine:
    """The engine, if its chunks can be kept. hash_seed: PYTHONHASHSEED. Raises StandBack."""
    if engine is None:
        raise StandBack(
            "vLLM's OffloadingConnector tells a tier nothing of the weights; set kv_connector to "
            "OnggiOffloadingConnector, kv_connector_module_path to onggi.connectors.vllm.secondary"
        )
    config = engine.vllm_config
    check_supported(config)
    if getattr(config, "lora_config", None) is not None:
        raise StandBack(
            "adapters (LoRA) are on: vLLM's keys name them by path, and do not change with their "
            "files; OnggiConnector keeps such blocks"
        )
    algorithm = str(config.cache_config.prefix_caching_hash_algo)
    if algorithm in RANDOM_HASHES and hash_seed is None:
        raise StandBack(
            f"prefix_caching_hash_algo is {algorithm}, seeded anew in each process, so nothing "
            "would be found after a restart; use sha256, or set PYTHONHASHSEED"
        )
    nodes = int(getattr(config.parallel_config, "nnodes_within_dp", 1) or 1)
    if nodes != 1:
        raise StandBack(f"the engine's ranks are on {nodes} nodes; a tier sees the memory of one")
    return engine


def prefix_groups(engine: Engine) -> frozenset[int]:
    """Groups of layers that see all tokens."""
    kinds = kinds_of(engine.kv_cache_config)
    return frozenset(group for kind in kinds if kind.needs_all for group in kind.groups)


def row_fields(
    engine: Engine,
    spec: Any,
    options: Options,
    *,
    row_bytes: int,
    hash_seed: str,
    engine_version: str,
    device: str,
) -> Fields:
    """spec: vLLM's OffloadingSpec. hash_seed: of the hashes that name chunks. device: what the
    engine computes on; it decides the attention backend where none is named. Raises StandBack,
    WeightsUnknown (weights.py), OSError for unreadable weights."""
    config, cache_config = engine.vllm_config, engine.kv_cache_config
    each = []
    for kind in kinds_of(cache_config):
        isa = ""
        if device == "cpu":
            layer = layer_specs(cache_config.kv_cache_groups[kind.groups[0]].kv_cache_spec)[0]
            kv_dtype = str(config.cache_config.cache_dtype)
            isa = cpu_isa(layer, config.model_config.dtype, kv_dtype)
        each.append(
            identity(
                config,
                cache_config,
                kind,
                options,
                engine_version=engine_version,
                tp_rank=0,
                pp_rank=0,
                backend=_digest(str(getattr(config, "attention_config", None))),
                isa=isa,
                page_bytes=row_bytes,
            )
        )
    parallel, asked = spec.config.parallel, spec.config
    return each[0] | {
        "form": "vllm-tier",
        "row_version": ROW_VERSION,
        "kinds": _digest(each),
        "device": device,
        "world_size": int(parallel.world_size),
        "blocks_per_chunk": int(asked.cache.blocks_per_chunk),
        "tokens_per_hash": int(asked.cache.tokens_per_hash),
        "groups_kept": _digest([(group.group_id, group.layer_names) for group in asked.groups]),
        "canonical": int(asked.canonical_layout),
        "replicated": int(spec.replicated_layout),
        "hash": f"{config.cache_config.prefix_caching_hash_algo} {_digest(hash_seed)}",
    }


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
