"""SGLang's interface, filled in: this class only translates and guards.

Every call is wrapped (guard.py) and bounded by the client's deadlines; for set-ups that are not
cached, and until the engine has shown its pools, all of them answer "nothing".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)

from onggi.connectors.sglang.guard import Faults, guarded, log
from onggi.connectors.sglang.hits import trailing_stops
from onggi.connectors.sglang.keys import OF_THIS_PROCESS
from onggi.connectors.sglang.options import Options, read_options
from onggi.connectors.sglang.pools import Pool
from onggi.connectors.sglang.shown import ShownPools
from onggi.connectors.sglang.start import Maker
from onggi.connectors.sglang.stats import Moved


def _none(*_: Any, **__: Any) -> None:
    return None


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _no(*_: Any, **__: Any) -> bool:
    return False


def _no_each(keys: Sequence[str], *_: Any, **__: Any) -> list[bool]:
    return [False] * len(keys)


def _none_each(keys: Sequence[str], *_: Any, **__: Any) -> list[Any]:
    return [None] * len(keys)


def _no_pools(transfers: Sequence[Any], *_: Any, **__: Any) -> dict[Any, list[bool]]:
    return {one.name: [False] * len(one.keys or ()) for one in transfers}


def _nothing(*_: Any, **__: Any) -> Any:
    return PoolTransferResult(0, {}, [])


class OnggiStorage(HiCacheStorage):  # type: ignore[misc]
    """One object a rank, called from its threads for queries, prefetches and backups."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:  # noqa: ARG002 - SGLang's
        self.faults = Faults()
        self.moved = Moved()
        self._config = storage_config
        options = self._read_options()
        self._pools = ShownPools(Maker(storage_config, options))
        if not options.socket and not self.faults.total:
            log.warning("onggi: this engine goes on without its storage: ONGGI_SOCKET is not set")

    @guarded(lambda: Options(socket=""))
    def _read_options(self) -> Options:
        return read_options(self._config.extra_config)

    # ---- the engine's pools

    @guarded(_none)
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._pools.show(PoolName.KV, mem_pool_host)

    @guarded(_none)
    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._pools.show(host_pool_name, host_pool)

    @guarded(_none)
    def on_host_pools_registered(self) -> None:
        self._pools.attach()

    # ---- pages of the main pool, in place

    @guarded(_zero)
    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:  # noqa: ARG002
        return self._pools.main.leading(keys) if keys and self._pools.main else 0

    @guarded(_no_each)
    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: Any,
        extra_info: Any = None,  # noqa: ARG002
    ) -> list[bool]:
        if self._pools.is_logical:
            return [True] * len(keys)
        return self._get(self._pools.get(PoolName.KV), keys, host_indices)

    @guarded(_no_each)
    def batch_set_v1(
        self, keys: list[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        if self._pools.is_logical:
            return [True] * len(keys)
        prefix = getattr(extra_info, "prefix_keys", None)
        return self._set(self._pools.get(PoolName.KV), keys, host_indices, prefix)

    def _get(self, pool: Pool | None, keys: Sequence[str], host_indices: Any) -> list[bool]:
        if pool is None or not keys:
            return [False] * len(keys)
        began_s = time.monotonic()
        done = pool.get(keys, host_indices)
        pages = sum(done)
        self.moved.got(pages, pages * pool.page_bytes, time.monotonic() - began_s)
        return done

    def _set(
        self,
        pool: Pool | None,
        keys: Sequence[str],
        host_indices: Any,
        prefix: Sequence[str] | None,
    ) -> list[bool]:
        if pool is None or not keys:
            return [False] * len(keys)
        if not pool.written:
            return [True] * len(keys)  # all ranks hold these alike, and one writes them
        began_s = time.monotonic()
        done = pool.set(keys, host_indices, prefix)
        pages = sum(done)
        self.moved.kept(pages, pages * pool.page_bytes, time.monotonic() - began_s)
        return done

    # ---- several pools

    @guarded(_nothing)
    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[Any] | None = None,
        extra_info: Any = None,  # noqa: ARG002
    ) -> Any:
        """Lengths of prefixes that can be restored whole, by each pool's rule."""
        if self._pools.is_logical:
            pages = len(keys)
        else:
            pages = self._pools.main.leading(keys) if keys and self._pools.main else 0
        hits: dict[Any, int] = {PoolName.KV: pages} if pages else {}
        stops = list(range(1, pages + 1))
        for transfer in pool_transfers or ():
            if not stops or transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
                continue  # of groups nothing is said, which holds back no hit
            found = self._stops(keys[: stops[-1]], transfer)
            if found:
                hits[transfer.name] = found[-1]
            both = frozenset(found)
            stops = [stop for stop in stops if stop in both]
        return PoolTransferResult(stops[-1] if stops else 0, hits, stops)

    def _stops(self, keys: Sequence[str], transfer: Any) -> list[int]:
        """Lengths of prefixes that one pool can restore, in ascending order."""
        pool = self._pools.get(transfer.name)
        if pool is None:
            return []
        if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
            return list(range(1, pool.leading(keys) + 1))
        window = max(1, len(transfer.keys or ()))
        return trailing_stops(lambda page: pool.has(keys[page]), len(keys), window)

    @guarded(_no_pools)
    def batch_get_v2(
        self,
        transfers: list[Any],
        extra_info: Any = None,  # noqa: ARG002
    ) -> dict[Any, list[bool]]:
        return self._each(
            transfers, lambda pool, one: self._get(pool, one.keys or (), one.host_indices)
        )

    @guarded(_no_pools)
    def batch_set_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        before = getattr(extra_info, "prefix_keys", None)

        def one_of(pool: Pool | None, one: Any) -> list[bool]:
            sparse = one.hit_policy == PoolHitPolicy.TRAILING_PAGES
            prefix = None if sparse else before  # what comes before a window is not kept with it
            return self._set(pool, one.keys or (), one.host_indices, prefix)

        return self._each(transfers, one_of)

    def _each(
        self, transfers: Sequence[Any], do: Callable[[Pool | None, Any], list[bool]]
    ) -> dict[Any, list[bool]]:
        """One pool that fails is a miss of its own and none of the others."""
        results: dict[Any, list[bool]] = {}
        for one in transfers:
            try:
                results[one.name] = do(self._pools.get(one.name), one)
            except Exception as error:  # noqa: BLE001 - as guarded() does for a whole call
                self.faults.note(f"pool {getattr(one.name, 'value', one.name)}", error)
                results[one.name] = [False] * len(one.keys or ())
        return results

    # ---- the plain interface: pages that SGLang has packed

    @guarded(_none)
    def get(
        self,
        key: str,
        target_location: Any = None,
        target_sizes: Any = None,  # noqa: ARG002
    ) -> Any:
        found = self.batch_get([key], None if target_location is None else [target_location])
        return found[0]

    @guarded(_none_each)
    def batch_get(
        self,
        keys: list[str],
        target_locations: Any = None,
        target_sizes: Any = None,  # noqa: ARG002
    ) -> list[Any]:
        pool = self._pools.packed
        if pool is None or not keys:
            return [None] * len(keys)
        if target_locations is None:
            target_locations = [pool.host.get_dummy_flat_data_page() for _ in keys]
        began_s = time.monotonic()
        done = pool.load(keys, target_locations)
        self.moved.got(done, done * pool.page_bytes, time.monotonic() - began_s)
        return [*target_locations[:done], *[None] * (len(keys) - done)]

    @guarded(_no)
    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,  # noqa: ARG002
    ) -> bool:
        page = target_location if value is None else value
        return self.batch_set([key], [page])

    @guarded(_no)
    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,  # noqa: ARG002
    ) -> bool:
        pool, pages = self._pools.packed, target_locations if values is None else values
        if pool is None or not keys or pages is None:
            return False
        if not pool.written:
            return True
        began_s = time.monotonic()
        done = pool.store(keys, pages)
        self.moved.kept(done, done * pool.page_bytes, time.monotonic() - began_s)
        return done == len(keys)

    @guarded(_no)
    def exists(self, key: str) -> bool:
        return self._pools.main is not None and self._pools.main.has(key)

    # ---- life

    @guarded(_no)
    def clear(self) -> bool:
        """Nothing kept before is found from here on. The agent evicts it in its own time."""
        OF_THIS_PROCESS.renew()
        return True

    @guarded(_none)
    def get_stats(self) -> Any:
        from sglang.srt.observability.metrics_collector import StorageMetrics

        return self.moved.take(StorageMetrics())

    @guarded(_none, always=True)
    def close(self) -> None:
        """Ends the sessions; what is asked afterwards misses."""
        self._pools.close()
