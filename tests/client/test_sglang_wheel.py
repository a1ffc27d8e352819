"""With SGLang's own factory and controller, and the stand-ins held against what they stand for.

Skipped, with the reason, where the wheel cannot be imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from types import SimpleNamespace
from typing import Any

import pytest
import sglang_stand_ins
from sglang_stand_ins import BATCH, hashes

pytestmark = pytest.mark.parametrize("sglang", ["wheel"], indirect=True)


def test_the_stand_ins_hold_the_same_contract(sglang: Any) -> None:
    from sglang.srt.mem_cache import hicache_storage as real
    from sglang.srt.observability.metrics_collector import StorageMetrics

    for name in ("HiCacheStorageConfig", "HiCacheStorageExtraInfo", "PoolTransfer"):
        mine = {one.name for one in dataclasses.fields(getattr(sglang_stand_ins, name))}
        theirs = {one.name for one in dataclasses.fields(getattr(real, name))}
        assert mine <= theirs, name
    for name in ("PoolName", "PoolHitPolicy"):
        mine = {one.name: one.value for one in getattr(sglang_stand_ins, name)}
        assert mine.items() <= {one.name: one.value for one in getattr(real, name)}.items()
    metrics = {one.name for one in dataclasses.fields(StorageMetrics)}
    assert {one.name for one in dataclasses.fields(sglang_stand_ins.StorageMetrics)} <= metrics
    for name, method in inspect.getmembers(sglang_stand_ins.HiCacheStorage, inspect.isfunction):
        wanted = list(inspect.signature(getattr(real.HiCacheStorage, name)).parameters)
        assert list(inspect.signature(method).parameters) == wanted, name


def test_the_backend_has_every_call_of_the_interface(make_rank: Any) -> None:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

    storage = type(make_rank().storage)
    for name, method in inspect.getmembers(HiCacheStorage, inspect.isfunction):
        mine = inspect.signature(getattr(storage, name))
        assert list(mine.parameters) == list(inspect.signature(method).parameters), name
        assert name in vars(storage) or name.startswith("_"), name


def test_its_factory_makes_the_backend(make_rank: Any, agent: Any) -> None:
    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

    from onggi.connectors.sglang.plugin import CONFIG

    rank = make_rank()
    config = rank.storage._config
    config.extra_config = {**CONFIG, "socket": agent.socket_path, "revision": "r1"}
    made = StorageBackendFactory.create_backend("dynamic", config, rank.pool)
    assert type(made) is type(rank.storage)
    made.register_mem_pool_host(rank.pool)
    assert rank.backup(hashes(2), range(2))
    assert made.batch_exists(hashes(2)) == 2
    made.close()


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_a_host_pool_in_shared_memory_is_filled_where_it_lies(
    sglang: Any, make_rank: Any, layout: str
) -> None:
    """Each byte is copied once between its memfd and the arena; nothing is packed on the way."""
    sglang.allocator = "shm"
    rank = make_rank(layout=layout, extra={"allocator": "shm"})
    assert os.readlink(f"/proc/self/fd/{rank.pool.fd}").startswith("/memfd:")
    wanted = [rank.write(page, page) for page in range(4)]
    assert rank.backup(hashes(4), range(4))
    assert rank.prefetch(hashes(4), range(8, 12)) == 4
    assert [rank.read(page) for page in range(8, 12)] == wanted
    shared = os.pread(rank.pool.fd, os.fstat(rank.pool.fd).st_size, 0)
    piece = wanted[0][: len(wanted[0]) // 2 // rank.pool.layer_num]
    assert shared.count(piece) == 2  # where it was written, and where it came back to


@pytest.mark.parametrize("interface_v1", [1, 0])
@pytest.mark.parametrize("layout", ["page_first", "layer_first", "page_first_direct"])
def test_its_controller_backs_up_and_prefetches(
    make_rank: Any, layout: str, interface_v1: int
) -> None:
    """SGLang's own loops over batches, with its own pages and indices."""
    from sglang.srt.managers.cache_controller import HiCacheController as Controller

    count = BATCH + 12
    rank = make_rank(layout=layout, pages=2 * count, extra={"interface_v1": interface_v1})
    controller = SimpleNamespace(
        storage_backend=rank.storage,
        storage_host_pool=rank.pool,
        page_size=rank.page_size,
        prefetch_sync_queue=SimpleNamespace(put=lambda _: None),
    )
    for name in ("_page_transfer_kv_batch", "_page_get_zero_copy", "_generic_page_get",
                 "_page_set_zero_copy", "_generic_page_set"):  # fmt: skip
        setattr(controller, name, getattr(Controller, name).__get__(controller))
    in_place = bool(interface_v1)
    controller.page_get_func = (
        controller._page_get_zero_copy if in_place else controller._generic_page_get
    )
    controller.page_set_func = (
        controller._page_set_zero_copy if in_place else controller._generic_page_set
    )
    wanted = [rank.write(page, page) for page in range(count)]

    def operation(pages: Any) -> Any:
        return SimpleNamespace(
            hash_value=hashes(count),
            host_indices=rank.at(pages),
            prefix_keys=[],
            pool_transfers=None,
            completed_tokens=0,
            request_id="r",
            is_terminated=lambda: False,
        )

    kept = operation(range(count))
    Controller._page_backup(controller, kept)
    assert kept.completed_tokens == count * rank.page_size
    came = Controller._page_transfer(controller, operation(range(count, 2 * count)))
    assert came == count
    assert [rank.read(page) for page in range(count, 2 * count)] == wanted
    assert rank.storage.faults.total == 0
