"""SGLang's side of a storage backend, for tests: stand-ins that hold the same contract, always, and
the real classes where the wheel is installed.

A stand-in pool is plain memory with the real pools' layouts. An `Engine` makes configs, pools and
indices of one of the two kinds, and backs up and prefetches as SGLang's controller does.
"""

from __future__ import annotations

import abc
import ctypes
import enum
import hashlib
import importlib
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

BATCH = 128
"""Keys of one call, as in SGLang."""


class PoolName(str, enum.Enum):
    KV = "kv"
    MAMBA = "mamba"
    SWA = "swa"
    INDEXER = "indexer"


class PoolHitPolicy(str, enum.Enum):
    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


@dataclass
class HiCacheStorageConfig:
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    attn_cp_rank: int
    attn_cp_size: int
    is_mla_model: bool
    enable_storage_metrics: bool
    is_page_first_layout: bool
    model_name: str | None
    extra_config: dict[str, Any] | None = None
    dcp_size: int = 1
    dcp_rank: int = 0

    @property
    def is_storage_writer(self) -> bool:
        return not self.is_mla_model or self.tp_rank == self.dcp_rank


@dataclass
class HiCacheStorageExtraInfo:
    prefix_keys: list[str] | None = None
    extra_info: dict[str, Any] | None = None


@dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Any = None
    keys: list[str] | None = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict[str, int]
    restorable_prefix_pages: list[int] | None = None


class HiCacheStorage(abc.ABC):
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.__dict__.setdefault("registered_pools", {})[host_pool_name] = host_pool

    @abc.abstractmethod
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any: ...
    @abc.abstractmethod
    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> Any: ...
    @abc.abstractmethod
    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool: ...
    @abc.abstractmethod
    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool: ...
    @abc.abstractmethod
    def exists(self, key: str) -> bool: ...


@dataclass
class StorageMetrics:
    prefetch_pgs: list[int] = field(default_factory=list)
    backup_pgs: list[int] = field(default_factory=list)
    prefetch_bandwidth: list[float] = field(default_factory=list)
    backup_bandwidth: list[float] = field(default_factory=list)


class Indices(list[int]):
    """As much of an index tensor as the interface uses."""

    def tolist(self) -> list[int]:
        return list(self)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Indices(found) if isinstance(at, slice) else found


class HostPool:
    """Page first or layer first; `width` bytes of each of the halves for a token and layer."""

    halves = 1

    def __init__(self, layout: str, *, pages: int, page_size: int, layers: int, width: int) -> None:
        self.layout, self.page_size, self.layer_num, self.dtype = layout, page_size, layers, "f16"
        self.start_layer, self.end_layer, self.storage_format_tag = 0, layers, None
        self._width, self._tokens = width, pages * page_size
        self.kv_buffer = bytearray(self.halves * layers * self._tokens * width)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.kv_buffer))

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        return self.places(indices)

    def places(self, indices: Any) -> tuple[list[int], list[int]]:
        assert len(indices) % self.page_size == 0
        half, each = len(self.kv_buffer) // self.halves, self.page_size * self._width
        starts = indices.tolist()[:: self.page_size]
        if self.layout == "page_first":
            row = self.layer_num * self._width
            at = [self._base + s * row + h * half for s in starts for h in range(self.halves)]
            return at, [each * self.layer_num] * len(at)
        layer = self._tokens * self._width
        at = [
            self._base + s * self._width + number * layer + h * half
            for s in starts
            for number in range(self.layer_num)
            for h in range(self.halves)
        ]
        return at, [each] * len(at)

    def get_dummy_flat_data_page(self) -> bytearray:
        return bytearray(self.halves * self.layer_num * self.page_size * self._width)

    def get_data_page(self, index: int) -> bytes:
        places = zip(*self.places(Indices(range(index, index + self.page_size))), strict=True)
        return b"".join(ctypes.string_at(at, size) for at, size in places)

    def set_from_flat_data_page(self, index: int, page: Any) -> None:
        done = 0
        indices = Indices(range(index, index + self.page_size))
        for at, size in zip(*self.places(indices), strict=True):
            ctypes.memmove(at, bytes(page[done : done + size]), size)
            done += size


class MHAHostPool(HostPool):
    """K and V."""

    halves = 2


class MLAHostPool(HostPool):
    """The latent."""


class MambaHostPool(HostPool):
    """States: a slot a page, and nobody tells where it lies."""

    def __init__(self, layout: str, *, pages: int, **sizes: int) -> None:
        super().__init__(layout, pages=pages, **{**sizes, "page_size": 1})

    def get_page_buffer_meta(self, indices: Any) -> Any:
        raise NotImplementedError("no zero-copy for states")


POOLS = {"mha": MHAHostPool, "mla": MLAHostPool, "mamba": MambaHostPool}


def modules() -> dict[str, ModuleType]:
    """What the backend imports, made of the above."""
    made = {
        name: ModuleType(name)
        for name in (
            "sglang",
            "sglang.version",
            "sglang.srt",
            "sglang.srt.runtime_context",
            "sglang.srt.mem_cache",
            "sglang.srt.mem_cache.hicache_storage",
            "sglang.srt.observability",
            "sglang.srt.observability.metrics_collector",
            "torch",
        )
    }
    made["sglang.version"].__version__ = "0.5"  # type: ignore[attr-defined]
    made["torch"].arange = lambda count: Indices(range(count))  # type: ignore[attr-defined]
    storage: Any = made["sglang.srt.mem_cache.hicache_storage"]
    for one in (HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult):
        setattr(storage, one.__name__, one)
    metrics: Any = made["sglang.srt.observability.metrics_collector"]
    metrics.StorageMetrics = StorageMetrics
    return made


class StandIns:
    """Of the engine's own classes and tensors."""

    Config = HiCacheStorageConfig
    ExtraInfo = HiCacheStorageExtraInfo
    Transfer = PoolTransfer
    Name = PoolName
    Policy = PoolHitPolicy

    def __init__(self, monkeypatch: Any) -> None:
        self._modules = modules()
        for name, module in self._modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    def set_arguments(self, arguments: Any) -> None:
        context: Any = self._modules["sglang.srt.runtime_context"]
        context.get_server_args = lambda: arguments

    def pool(self, kind: str, layout: str, **sizes: int) -> Any:
        return POOLS[kind](layout, **sizes)

    def indices(self, numbers: Sequence[int]) -> Any:
        return Indices(numbers)


def hashes(count: int, seed: int = 0) -> list[str]:
    """A chain as SGLang names it: 64 hexadecimal digits a page."""
    return [hashlib.sha256(f"{seed}/{n}".encode()).hexdigest() for n in range(count)]


class Rank:
    """One rank of an engine: its pools, and a backend as the factory makes it."""

    def __init__(
        self,
        engine: Any,
        socket: str,
        *,
        kind: str = "mha",
        layout: str = "page_first",
        pages: int = 16,
        page_size: int = 4,
        layers: int = 3,
        width: int = 64,
        extra: dict[str, Any] | None = None,
        only: dict[str, Any] | None = None,
        tp: tuple[int, int] = (0, 1),
        others: Sequence[tuple[str, str]] = (),
    ) -> None:
        """extra: over the usual extra config. only: in its place. others: (pool name, kind) of
        further pools."""
        self.engine, self.page_size = engine, page_size
        sizes = {"page_size": page_size, "layers": layers, "width": width}
        self.pool = engine.pool(kind, layout, pages=pages, **sizes)
        self.others = {name: engine.pool(k, layout, pages=pages, **sizes) for name, k in others}
        given = {"socket": socket, "interface_v1": 1, "revision": "r1", "deadline_s": 5.0}
        config = engine.Config(
            tp_rank=tp[0],
            tp_size=tp[1],
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=kind == "mla",
            enable_storage_metrics=True,
            is_page_first_layout=layout == "page_first",
            model_name="served-name",
            extra_config={**given, **(extra or {})} if only is None else only,
        )
        module = importlib.import_module("onggi.connectors.sglang")
        self.storage: Any = module.OnggiStorage(config, {})
        self.storage.register_mem_pool_host(self.pool)
        if self.others:
            self.storage.register_mem_host_pool_v2(self.pool, engine.Name.KV)
        for name, pool in self.others.items():
            self.storage.register_mem_host_pool_v2(pool, engine.Name(name))
        self.storage.on_host_pools_registered()

    def at(self, pages: Sequence[int], pool: Any = None) -> Any:
        """Host indices of these pages."""
        size = (pool or self.pool).page_size
        return self.engine.indices([p * size + t for p in pages for t in range(size)])

    def write(self, page: int, seed: int, pool: Any = None) -> bytes:
        """Content of its own in one page of the pool."""
        wanted = random.Random(seed).randbytes(len(self.read(page, pool)))
        at = 0
        for address, size in self._places(page, pool):
            ctypes.memmove(address, wanted[at : at + size], size)
            at += size
        return wanted

    def read(self, page: int, pool: Any = None) -> bytes:
        return b"".join(ctypes.string_at(at, size) for at, size in self._places(page, pool))

    def _places(self, page: int, pool: Any) -> list[tuple[int, int]]:
        pool = self.pool if pool is None else pool
        told = getattr(pool, "places", pool.get_page_buffer_meta)
        return list(zip(*told(self.at([page], pool)), strict=True))

    def backup(self, keys: Sequence[str], pages: Sequence[int]) -> bool:
        """As SGLang's backup thread does."""
        prefix: list[str] = []
        for begin in range(0, len(keys), BATCH):
            some = list(keys[begin : begin + BATCH])
            info = self.engine.ExtraInfo(prefix_keys=list(prefix))
            where = self.at(pages[begin : begin + BATCH])
            if not all(self.storage.batch_set_v1(some, where, info)):
                return False
            prefix += some
        return True

    def prefetch(self, keys: Sequence[str], pages: Sequence[int]) -> int:
        """As SGLang's prefetch threads do; how many leading pages came."""
        hit = self.storage.batch_exists(list(keys), self.engine.ExtraInfo())
        done = 0
        for begin in range(0, hit, BATCH):
            some = list(keys[begin : min(hit, begin + BATCH)])
            found = self.storage.batch_get_v1(some, self.at(pages[begin : begin + len(some)]))
            run = found.index(False) if False in found else len(found)
            done += run
            if run < len(some):
                break
        return done


def arguments(**changed: Any) -> Any:
    """Of an engine that was started with nothing special."""
    return SimpleNamespace(
        **{"model_path": "a/model", "dtype": "auto", "kv_cache_dtype": "auto", **changed}
    )
