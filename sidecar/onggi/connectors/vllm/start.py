"""Putting a side together, or saying why this engine goes on without Onggi."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import vllm

from onggi.client import Client
from onggi.connectors.changed import say_what_changed
from onggi.connectors.vllm.attaching import attach
from onggi.connectors.vllm.copier import GroupsCopier, HostCopier, LayerCopier
from onggi.connectors.vllm.cores import allowed, spare
from onggi.connectors.vllm.drafts import drafter, looks_ahead, saves_unasked
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.guard import Faults, log
from onggi.connectors.vllm.hybrid.kinds import Kind, StandBack, kinds_of, layer_specs
from onggi.connectors.vllm.hybrid.pins import Pins
from onggi.connectors.vllm.hybrid.scheduler import HybridScheduler
from onggi.connectors.vllm.identity import Fields, check_supported, cpu_isa, identity
from onggi.connectors.vllm.layout import LayoutUnsupported, PageMap, page_map
from onggi.connectors.vllm.metadata import Space, Told
from onggi.connectors.vllm.options import Options
from onggi.connectors.vllm.scheduler import Scheduler
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.worker import Worker
from onggi.connectors.weights import WeightsUnknown
from onggi_core.identity import fingerprint
from onggi_core.wire.requests import SpaceSpec

SAVE_DEADLINE_S: Final = 1.0
"""Of a worker's calls: all of them are the mover's, for saves, and no request waits for those. With
the scheduler's deadline a busy node loses whole prompts to a reply that was 20 ms late."""


@dataclass(frozen=True)
class _Pages:
    """Pages of one kind on this rank: where the parts of its groups lie, who copies them, and what
    their fingerprint is made of."""

    kind: Kind
    maps: tuple[PageMap, ...]
    copiers: tuple[LayerCopier, ...]
    fields: Fields

    @property
    def space(self) -> Space:
        fields = self.fields
        return Space(fingerprint(fields), self.maps[-1].page_bytes, int(fields["block_tokens"]))


def worker(
    vllm_config: Any,
    kv_cache_config: Any,
    kv_caches: Mapping[str, Any],
    options: Options,
    faults: Faults,
    tally: Tally,
) -> tuple[Worker | None, Told]:
    """This rank's worker, and what the scheduler must know of it. None: it takes no part."""
    try:
        if not options.socket:
            raise StandBack("no socket is named; set ONGGI_SOCKET to the agent's")
        check_supported(vllm_config)
        pages = [
            _pages(vllm_config, kv_cache_config, kind, options, kv_caches)
            for kind in kinds_of(kv_cache_config)
        ]
    except (StandBack, LayoutUnsupported, WeightsUnknown, OSError) as why:
        log.warning("onggi: this engine goes on without its cache: %s", why)
        return None, Told(reason=str(why))
    groups = kv_cache_config.kv_cache_groups
    told = Told(
        tuple(each.kind for each in pages),
        tuple(each.space for each in pages),
        unit=math.lcm(*(int(group.kv_cache_spec.block_size) for group in groups)),
        plain=len(groups) == 1 and pages[0].kind.needs_all,
    )
    made = _worker(vllm_config, told, pages, options, faults, tally)
    made.start(told)
    return made, told


def _worker(
    vllm_config: Any,
    told: Told,
    pages: Sequence[_Pages],
    options: Options,
    faults: Faults,
    tally: Tally,
) -> Worker:
    fields, first = pages[0].fields, pages[0]
    rank = f"tp{fields['tp_rank']}-pp{fields['pp_rank']}"
    for number, each in enumerate(pages):
        name = f"{rank}-{number}" if number else rank
        say_what_changed(os.path.dirname(options.socket), name, each.fields)
    client = Client(
        options.socket,
        spaces=[_spec(space) for space in told.spaces],
        engine=f"vllm-worker-{rank}",
        deadline_s=max(options.deadline_s, SAVE_DEADLINE_S),
        log=log,
    )
    cores = allowed()
    spare_core = spare(cores, torch.get_num_threads() * int(fields["tp_size"]))
    by_layers = told.plain and _layerwise(options, on_cpu=bool(fields["isa"]), spare=spare_core)
    names = first.maps[0].layers if by_layers and not _hides_layers(vllm_config) else ()
    last = int(fields["pp_rank"]) == int(fields["pp_size"]) - 1
    how: dict[str, Any] = {
        "cores": cores,
        "saves_unasked": saves_unasked(vllm_config, last_of_pipeline=last),
    }
    row = int(fields["pp_rank"]) * int(fields["tp_size"]) + int(fields["tp_rank"])
    for space in told.spaces:
        log.info(
            "onggi: %s keeps blocks of %d tokens, %d bytes, under fingerprint %s, %s; agent %s",
            rank,
            space.block_tokens,
            space.page_bytes,
            space.fingerprint.hex(),
            "layer by layer" if names else "whole",
            "attached" if attach(client) else "not there yet",
        )
    if told.plain:
        (copier,) = first.copiers
        return Worker(client, [copier], row, faults, tally, sync=copier, layers=names, **how)
    several = [GroupsCopier(each.copiers) for each in pages]
    return Worker(client, several, row, faults, tally, **how)


def scheduler(
    vllm_config: Any,
    kv_cache_config: Any,
    told: Sequence[Told],
    options: Options,
    faults: Faults,
    tally: Tally,
    pins: Pins,
) -> Scheduler | HybridScheduler | None:
    """The scheduler side for workers that told this of themselves, in the order of their ranks."""
    parallel = vllm_config.parallel_config
    ranks = int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size)
    if len(told) != ranks or any(one.reason for one in told):
        return None  # the worker said why
    first = told[0]
    if any((one.kinds, one.unit) != (first.kinds, first.unit) for one in told):
        log.warning("onggi: the ranks cut their layers into other groups; nothing is cached")
        return None
    clients = [
        Client(
            options.socket,
            spaces=[_spec(one.spaces[number]) for one in told],
            engine="vllm-scheduler",
            deadline_s=options.deadline_s,
            log=log,
        )
        for number in range(len(first.kinds))
    ]
    for client in clients:
        attach(client)
    common: dict[str, Any] = {
        "disk_wait_s": options.disk_wait_s,
        "ranks": ranks,
        "faults": faults,
        "tally": tally,
        "weigh": options.load == "worth",
        "events": Events(_hash_tokens(vllm_config, kv_cache_config, first.unit), ranks),
        "looks_ahead": looks_ahead(vllm_config),
    }
    if first.plain:
        return Scheduler(clients[0], first.unit, **common)
    return HybridScheduler(clients, first.kinds, first.unit, pins=pins, **common)


def _hash_tokens(vllm_config: Any, kv_cache_config: Any, unit: int) -> int:
    """Tokens of a hash of the engine's, if it publishes events."""
    asked = getattr(vllm_config, "kv_events_config", None)
    if asked is None or not asked.enable_kv_cache_events:
        return 0
    return int(getattr(kv_cache_config, "hash_block_size", None) or unit)


def _spec(space: Space) -> SpaceSpec:
    return SpaceSpec(space.fingerprint, space.page_bytes, space.block_tokens)


def _pages(
    vllm_config: Any,
    kv_cache_config: Any,
    kind: Kind,
    options: Options,
    kv_caches: Mapping[str, Any],
) -> _Pages:
    maps: list[PageMap] = []
    copiers: list[LayerCopier] = []
    for number in kind.groups:
        layers = kv_cache_config.kv_cache_groups[number].layer_names
        begin = maps[-1].page_bytes if maps else 0
        maps.append(page_map(kv_caches, layers, kv_cache_config.num_blocks, begin))
        copiers.append(_copier(kv_caches, layers, maps[-1]))
    fields = _fields(vllm_config, kv_cache_config, kind, options, kv_caches, maps[-1].page_bytes)
    return _Pages(kind, tuple(maps), tuple(copiers), fields)


def _fields(
    vllm_config: Any,
    kv_cache_config: Any,
    kind: Kind,
    options: Options,
    kv_caches: Mapping[str, Any],
    page_bytes: int,
) -> Fields:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    groups = [kv_cache_config.kv_cache_groups[number] for number in kind.groups]
    layers = [name for group in groups for name in group.layer_names]
    on_cpu = kv_caches[layers[0]].device.type == "cpu"
    model, cache = vllm_config.model_config, vllm_config.cache_config
    spec = layer_specs(groups[0].kv_cache_spec)[0]
    return identity(
        vllm_config,
        kv_cache_config,
        kind,
        options,
        engine_version=vllm.__version__,
        tp_rank=get_tp_group().rank_in_group,
        pp_rank=get_pp_group().rank_in_group,
        backend=_backends(vllm_config, layers),
        isa=cpu_isa(spec, model.dtype, str(cache.cache_dtype)) if on_cpu else "",
        page_bytes=page_bytes,
    )


def _backends(vllm_config: Any, layers: Sequence[str]) -> str:
    """Names of the attention backends in use, which lay out the inside of a page."""
    context = vllm_config.compilation_config.static_forward_context
    names = set()
    for layer in layers:
        backend = getattr(context.get(layer), "attn_backend", None)
        names.add(backend.get_name() if backend is not None else "unknown")
    return ",".join(sorted(names))


def _layerwise(options: Options, *, on_cpu: bool, spare: bool) -> bool:
    """Whether loads come layer by layer, beside the forward pass. On CPU that takes a core which
    the forward pass does not use: without one it only moves the copies to where they hurt more."""
    if options.layerwise != "auto":
        return options.layerwise == "on"
    return spare or not on_cpu


def _hides_layers(vllm_config: Any) -> bool:
    """Whether a forward pass may not ask for all of its layers: those of what drafts are read after
    it, and one that is replayed whole from a captured graph reads them before they came."""
    if drafter(vllm_config) is not None:
        return True
    mode = vllm_config.compilation_config.cudagraph_mode
    return mode is not None and bool(mode.has_full_cudagraphs())


def _copier(kv_caches: Mapping[str, Any], layers: Sequence[str], pages: PageMap) -> LayerCopier:
    device = kv_caches[layers[0]].device
    if device.type == "cpu":
        return HostCopier(pages)
    if device.type == "cuda":
        from onggi.cuda_pages import CudaCopier, byte_views

        tensors = [kv_caches[layer] for layer in layers]
        return CudaCopier(byte_views(tensors, pages.runs, pages.blocks, torch), pages.runs)
    raise LayoutUnsupported(f"KV tensors on {device.type} are not copied yet")
