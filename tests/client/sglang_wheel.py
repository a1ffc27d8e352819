"""The real classes of SGLang for the tests of its backend: interface and host pools on the CPU.

They need the wheel and what importing it takes, torch included, but no GPU: `make sglang` has an
environment for it. Where it cannot be imported the tests are skipped, with the reason.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

TOKENS_ON_DEVICE = 8


class Wheel:
    """As StandIns, of the installed SGLang."""

    def __init__(self, monkeypatch: Any) -> None:
        found = _imported()
        if isinstance(found, str):
            assert not os.environ.get("ONGGI_NEEDS_SGLANG"), found
            pytest.skip(found)
        torch, hicache_storage, base = found
        self._torch, self._monkeypatch = torch, monkeypatch
        self.Config = hicache_storage.HiCacheStorageConfig
        self.ExtraInfo = hicache_storage.HiCacheStorageExtraInfo
        self.Transfer = hicache_storage.PoolTransfer
        self.Name = hicache_storage.PoolName
        self.Policy = hicache_storage.PoolHitPolicy
        self.allocator = "default"
        """Of the next pools' memory, as SGLang names it."""
        # Pools of some kilobytes need no reserve of gigabytes.
        monkeypatch.setattr(base, "HICACHE_HOST_MEMORY_RESERVE_BYTES", 0)

    def set_arguments(self, arguments: Any) -> None:
        from sglang.srt import runtime_context

        self._monkeypatch.setattr(runtime_context, "get_server_args", lambda: arguments)

    def indices(self, numbers: Sequence[int]) -> Any:
        return self._torch.tensor(numbers, dtype=self._torch.int64)

    def pool(
        self, kind: str, layout: str, *, pages: int, page_size: int, layers: int, width: int
    ) -> Any:
        make = {"mha": self._mha, "mla": self._mla, "mamba": self._mamba}[kind]
        return make(layout, pages, page_size, layers, width)

    def _mha(self, layout: str, pages: int, page_size: int, layers: int, width: int) -> Any:
        from sglang.srt.mem_cache.device_pool_info import (
            KVBufferLayout,
            KVBuffers,
            MHABufferInfo,
        )
        from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

        torch = self._torch
        head = width // 2
        k, v = (
            tuple(
                torch.zeros(TOKENS_ON_DEVICE, 1, head, dtype=torch.float16) for _ in range(layers)
            )
            for _ in range(2)
        )
        info = MHABufferInfo(
            buffers=KVBuffers(
                k=k,
                v=v,
                k_data_ptrs=_pointers(torch, k),
                v_data_ptrs=_pointers(torch, v),
                layout=KVBufferLayout.NHD,
            ),
            page_size=page_size,
            head_num=1,
            head_dim=head,
            v_head_dim=head,
            dtype=torch.float16,
            device=torch.device("cpu"),
        )
        return MHATokenToKVPoolHost(
            info,
            1.0,
            0,
            page_size,
            layout,
            pin_memory=False,
            allocator_type=self.allocator,
            device_capacity_tokens=TOKENS_ON_DEVICE,
            start_layer=0,
            end_layer=layers,
            host_token_capacity=pages * page_size,
        )

    def _mla(self, layout: str, pages: int, page_size: int, layers: int, width: int) -> Any:
        from sglang.srt.mem_cache.device_pool_info import MLABufferInfo
        from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

        torch = self._torch
        rows = tuple(
            torch.zeros(TOKENS_ON_DEVICE, 1, width // 2, dtype=torch.float16) for _ in range(layers)
        )
        info = MLABufferInfo(
            buffers=rows,
            data_ptrs=_pointers(torch, rows),
            layer_indices=tuple(range(layers)),
            device_layer_num=layers,
            page_size=page_size,
            kv_lora_rank=width // 4,
            qk_rope_head_dim=width // 4,
            kv_cache_dim=width // 2,
            dtype=torch.float16,
            device=torch.device("cpu"),
        )
        return MLATokenToKVPoolHost(
            info,
            1.0,
            0,
            page_size,
            layout,
            pin_memory=False,
            device_capacity_tokens=TOKENS_ON_DEVICE,
            start_layer=0,
            end_layer=layers,
            target_layer_num=layers,
            host_token_capacity=pages * page_size,
        )

    def _mamba(self, layout: str, pages: int, page_size: int, layers: int, width: int) -> Any:
        from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
        from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost

        torch = self._torch
        info = MambaStateBufferInfo(
            temporal=torch.zeros(layers, TOKENS_ON_DEVICE, width // 4, dtype=torch.float32),
            conv=[torch.zeros(layers, TOKENS_ON_DEVICE, width // 4, 2, dtype=torch.float16)],
        )
        return MambaPoolHost(
            info,
            pages / TOKENS_ON_DEVICE,
            0,
            device_capacity=TOKENS_ON_DEVICE,
            pin_memory=False,
            layout=layout,
        )


@functools.cache
def _imported() -> Any:
    """Torch and the modules, or why not. Once: it takes half a minute of processor time."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an engine's packages; not ours to mend
            import torch
            from sglang.srt.managers import cache_controller  # noqa: F401 - imports the rest
            from sglang.srt.mem_cache import hicache_storage
            from sglang.srt.mem_cache.pool_host import base
    except Exception as why:  # noqa: BLE001 - whatever an engine's import may raise
        return f"SGLang cannot be imported here ({why!r:.150}); `make sglang` installs it"
    return torch, hicache_storage, base


def _pointers(torch: Any, tensors: Sequence[Any]) -> Any:
    return torch.tensor([one.data_ptr() for one in tensors], dtype=torch.uint64)
