"""Putting a side together, or saying why this engine goes on without Onggi."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import vllm

from onggi.client import Client
from onggi.connectors.vllm.copier import Copier, HostCopier
from onggi.connectors.vllm.cores import allowed, spare
from onggi.connectors.vllm.guard import Faults, log
from onggi.connectors.vllm.identity import (
    StandBack,
    check_supported,
    cpu_isa,
    identity,
    say_what_changed,
)
from onggi.connectors.vllm.layout import LayoutUnsupported, PageMap, page_map
from onggi.connectors.vllm.metadata import Space
from onggi.connectors.vllm.options import Options
from onggi.connectors.vllm.scheduler import Scheduler
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.weights import WeightsUnknown
from onggi.connectors.vllm.worker import Worker
from onggi_core.identity import fingerprint
from onggi_core.wire.requests import SpaceSpec

SAVE_DEADLINE_S: Final = 1.0
"""Of a worker's calls: all of them are the mover's, for saves, and no request waits for those. With
the scheduler's deadline a busy node loses whole prompts to a reply that was 20 ms late."""

ATTACH_WAIT_S: Final = 2.0
"""At start an engine can wait for its agent; the first request then need not, and does not miss
because a busy node took its time."""


def worker(
    vllm_config: Any,
    kv_cache_config: Any,
    kv_caches: Mapping[str, Any],
    options: Options,
    faults: Faults,
    tally: Tally,
) -> tuple[Worker | None, Space]:
    """This rank's worker, and what the scheduler must know of it. None: it takes no part."""
    try:
        if not options.socket:
            raise StandBack("no socket is named (ONGGI_SOCKET)")
        check_supported(vllm_config, kv_cache_config)
        layers = kv_cache_config.kv_cache_groups[0].layer_names
        pages = page_map(kv_caches, layers, kv_cache_config.num_blocks)
        fields = _fields(vllm_config, kv_cache_config, options, kv_caches, pages)
        copier = _copier(kv_caches, layers, pages)
    except (StandBack, LayoutUnsupported, WeightsUnknown, OSError) as why:
        log.warning("onggi: this engine goes on without its cache: %s", why)
        return None, Space(b"", 0, 0, reason=str(why))
    rank = f"tp{fields['tp_rank']}-pp{fields['pp_rank']}"
    say_what_changed(os.path.dirname(options.socket), rank, fields)
    space = Space(fingerprint(fields), pages.page_bytes, int(fields["block_tokens"]))
    client = Client(
        options.socket,
        spaces=[SpaceSpec(space.fingerprint, space.page_bytes, space.block_tokens)],
        engine=f"vllm-worker-{rank}",
        deadline_s=max(options.deadline_s, SAVE_DEADLINE_S),
        log=log,
    )
    device, cores = kv_caches[layers[0]].device.type, allowed()
    spare_core = spare(cores, torch.get_num_threads() * int(fields["tp_size"]))
    by_layers = _layerwise(options, device, spare_core=spare_core)
    names = pages.layers if by_layers and not _graphs_hide_layers(vllm_config) else ()
    row = int(fields["pp_rank"]) * int(fields["tp_size"]) + int(fields["tp_rank"])
    log.info(
        "onggi: %s keeps blocks of %d tokens, %d bytes, under fingerprint %s, %s; agent %s",
        rank,
        space.block_tokens,
        space.page_bytes,
        space.fingerprint.hex(),
        "layer by layer" if names else "whole",
        "attached" if _attach(client) else "not there yet",
    )
    made = Worker(client, copier, row, faults, tally, layers=names, cores=cores)
    made.start()
    return made, space


def scheduler(
    vllm_config: Any, spaces: Sequence[Space], options: Options, faults: Faults, tally: Tally
) -> Scheduler | None:
    """The scheduler side for workers that said these spaces, in the order of their ranks."""
    parallel = vllm_config.parallel_config
    ranks = int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size)
    if len(spaces) != ranks or any(space.reason for space in spaces):
        return None  # the worker said why
    client = Client(
        options.socket,
        spaces=[SpaceSpec(s.fingerprint, s.page_bytes, s.block_tokens) for s in spaces],
        engine="vllm-scheduler",
        deadline_s=options.deadline_s,
        log=log,
    )
    _attach(client)
    block_tokens = spaces[0].block_tokens
    return Scheduler(
        client,
        block_tokens,
        disk_wait_s=options.disk_wait_s,
        ranks=ranks,
        faults=faults,
        tally=tally,
        weigh=options.load == "worth",
    )


def _attach(client: Client) -> bool:
    until_s = time.monotonic() + ATTACH_WAIT_S
    while not client.attached:
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.02)
    return True


def _fields(
    vllm_config: Any,
    kv_cache_config: Any,
    options: Options,
    kv_caches: Mapping[str, Any],
    pages: PageMap,
) -> dict[str, str | int]:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    group = kv_cache_config.kv_cache_groups[0]
    on_cpu = kv_caches[group.layer_names[0]].device.type == "cpu"
    model, cache = vllm_config.model_config, vllm_config.cache_config
    spec = group.kv_cache_spec
    return identity(
        vllm_config,
        kv_cache_config,
        options,
        engine_version=vllm.__version__,
        tp_rank=get_tp_group().rank_in_group,
        pp_rank=get_pp_group().rank_in_group,
        backend=_backends(vllm_config, group.layer_names),
        isa=cpu_isa(spec, model.dtype, str(cache.cache_dtype)) if on_cpu else "",
        page_bytes=pages.page_bytes,
    )


def _backends(vllm_config: Any, layers: Sequence[str]) -> str:
    """Names of the attention backends in use, which lay out the inside of a page."""
    context = vllm_config.compilation_config.static_forward_context
    names = set()
    for layer in layers:
        backend = getattr(context.get(layer), "attn_backend", None)
        names.add(backend.get_name() if backend is not None else "unknown")
    return ",".join(sorted(names))


def _layerwise(options: Options, device: str, *, spare_core: bool) -> bool:
    """Whether loads come layer by layer, beside the forward pass. On CPU that takes a core which
    the forward pass does not use: without one it only moves the copies to where they hurt more."""
    if options.layerwise != "auto":
        return options.layerwise == "on"
    return device != "cpu" or spare_core


def _graphs_hide_layers(vllm_config: Any) -> bool:
    """Whether whole forward passes may be replayed from a captured graph, which asks for no layer:
    it would read them before they came."""
    mode = vllm_config.compilation_config.cudagraph_mode
    return mode is not None and bool(mode.has_full_cudagraphs())


def _copier(kv_caches: Mapping[str, Any], layers: Sequence[str], pages: PageMap) -> Copier:
    device = kv_caches[layers[0]].device
    if device.type == "cpu":
        return HostCopier(pages)
    if device.type == "cuda":
        from onggi.cuda_pages import CudaCopier, byte_views

        tensors = [kv_caches[layer] for layer in layers]
        return CudaCopier(byte_views(tensors, pages.runs, pages.blocks, torch), pages.runs)
    raise LayoutUnsupported(f"KV tensors on {device.type} are not copied yet")
