"""For tests: what SGLang lacks on a CPU between its device pool and its host pool.

Its copies there are kernels for GPUs, and so are pinned memory and the events of streams. These are
put in their place, in each of the engine's processes, as a plugin; what lies between host pool and
storage stays SGLang's own. No set-up to copy: such an engine is slow and proves nothing of a GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

METADATA = "Metadata-Version: 2.1\nName: sglang-on-cpu\nVersion: 1\n"
ENTRY_POINTS = "[sglang.srt.plugins]\nsglang_on_cpu = sglang_on_cpu:register\n"


def install(folder: Path) -> None:
    """Makes `folder` a part of PYTHONPATH by which SGLang finds this plugin."""
    info = folder / "sglang_on_cpu-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "sglang_on_cpu.py").write_text(Path(__file__).read_text())


def in_pages(indices: Any, page_size: int) -> Any:
    """Indices of tokens as [pages, page_size]."""
    return indices.cpu().view(-1, page_size)


def to_host(
    *,
    src_ptrs: Sequence[Any],
    dst_ptrs: Sequence[Any],
    src_indices: Any,
    dst_indices: Any,
    page_size: int,
) -> None:
    """Tokens of all layers (those of K, then those of V) to pages [page, layer, token, ...] of a
    host pool for K and one for V. Called by these names."""
    rows = in_pages(src_indices, page_size)
    pages = in_pages(dst_indices, page_size)[:, 0] // page_size
    layers = len(src_ptrs) // len(dst_ptrs)
    for part, target in enumerate(dst_ptrs):
        for layer in range(layers):
            source = src_ptrs[part * layers + layer]
            for row, page in zip(rows, pages, strict=True):
                target[page, layer] = source[row].view(target[page, layer].shape)


def to_device(
    *,
    src_ptrs: Sequence[Any],
    dst_ptrs: Sequence[Any],
    src_indices: Any,
    dst_indices: Any,
    layer_id: int,
    page_size: int,
) -> None:
    """One layer of K and V back. Called by these names."""
    pages = in_pages(src_indices, page_size)[:, 0] // page_size
    rows = in_pages(dst_indices, page_size)
    for source, target in zip(src_ptrs, dst_ptrs, strict=True):
        for row, page in zip(rows, pages, strict=True):
            target[row] = source[page, layer_id].view(target[row].shape)


def nothing(*_: Any, **__: Any) -> None:
    return None


def register() -> None:
    """Entry point of group sglang.srt.plugins."""
    torch = importlib.import_module("torch")
    pools = "sglang.srt.mem_cache.pool_host"
    mha = importlib.import_module(f"{pools}.mha")
    mha.transfer_kv_all_layer_direct_lf_pf = to_host
    mha.transfer_kv_per_layer_direct_pf_lf = to_device
    torch.cpu.Stream.synchronize = nothing

    class Event(torch.cpu.Event):  # type: ignore[misc, name-defined]
        def __init__(self, **_: Any) -> None:
            super().__init__()

        def elapsed_time(self, _: Any) -> float:
            return 0.0

    torch.cpu.Event = Event
    common = importlib.import_module(f"{pools}.common")
    common._cuda_host_register = common._cuda_host_unregister = nothing
    importlib.import_module(f"{pools}.base").HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
