"""Runs in Mooncake's interpreter: `mooncake_worker.py MODE ADDRESS BYTES`.

MODE `shm`: through mooncake_client, which keeps the bytes in a process of its own, as Onggi's agent
does; pages lie in the memory shared with it, its best case. ADDRESS is the client's. MODE
`embedded`: the bytes are kept in this process, as its vLLM connector does by default; ADDRESS is
the master's. Calls: batch_put_from, batch_get_into, batch_is_exist, all without a copy in Python.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from bench.pages import Region
from bench.peers.copying import Copying
from bench.peers.talk import serve
from bench.sizes import MIB, POOL_FACTOR

LEASE_S = 1.2
"""What was read cannot be removed for the master's lease (started with 1 s here)."""


class Mooncake:
    def __init__(self, mode: str, address: str, nbytes: int) -> None:
        from mooncake.store import MooncakeDistributedStore

        self._store: Any = MooncakeDistributedStore()
        if mode == "shm":
            code = self._store.setup_dummy(2 * nbytes + 64 * MIB, 64 * MIB, address)
            at = [self._store.alloc_from_mem_pool(nbytes) for _ in range(2)]
        else:
            segment = POOL_FACTOR * nbytes
            where = ("127.0.0.1", "P2PHANDSHAKE", segment, 64 * MIB, "tcp", "", address)
            code = self._store.setup(*where)
            at = [0, 0]
        if code:
            raise OSError(f"setup of the {mode} store answered {code}")
        self._regions = Region(nbytes, at[0]), Region(nbytes, at[1])
        for region in self._regions:
            if code := self._store.register_buffer(region.address, nbytes):
                raise OSError(f"register_buffer answered {code}")
        self._page_bytes = self._pages = 0

    def regions(self) -> tuple[Region, Region]:
        return self._regions

    def shape(self, page_bytes: int, batch_pages: int) -> None:
        self._page_bytes, self._pages = page_bytes, batch_pages
        self._sizes = [page_bytes] * batch_pages
        time.sleep(LEASE_S)
        self._store.remove_all()

    def _keys(self, name: int) -> list[str]:
        return [f"{name}-{page}" for page in range(self._pages)]

    def _addresses(self, region: Region, first: int) -> list[int]:
        begin = region.address + first * self._page_bytes
        return list(range(begin, begin + self._pages * self._page_bytes, self._page_bytes))

    def store(self, name: int, first: int) -> None:
        at = self._addresses(self._regions[0], first)
        codes = self._store.batch_put_from(self._keys(name), at, self._sizes)
        if any(codes):
            raise OSError(f"batch_put_from answered {codes[:4]}")

    def load(self, name: int, first: int) -> None:
        at = self._addresses(self._regions[1], first)
        codes = self._store.batch_get_into(self._keys(name), at, self._sizes)
        if codes != self._sizes:
            raise OSError(f"batch_get_into answered {codes[:4]}")

    def make_room(self, name: int) -> None:
        self._store.batch_remove(self._keys(name))

    def find(self, name: int) -> None:
        if self._store.batch_is_exist(self._keys(name)) != [1] * self._pages:
            raise OSError("batch_is_exist did not find what is there")


if __name__ == "__main__":
    serve(lambda: Copying(Mooncake(sys.argv[1], sys.argv[2], int(sys.argv[3]))).commands())
