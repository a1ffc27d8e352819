"""Runs in LMCache's interpreter: `lmcache_worker.py ADDRESS BYTES`. Client of its MP server.

Its best case over shared memory on a CPU: its own worker-side transfer context, which gathers
straight into the server's pool and scatters straight out of it, and a KV cache of one layer, so
that a page of a batch is one chunk of 256 tokens in two contiguous pieces. A load is what its
connector does for one: LOOKUP, which locks the chunks, and RETRIEVE. A batch is one sequence.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from bench.pages import Region
from bench.peers.copying import Copying
from bench.peers.talk import serve

CHUNK_TOKENS = 256
HEADS = 8
ANSWER_S = 30.0
TOKENS = 50_000


class LMCache:
    def __init__(self, address: str, nbytes: int) -> None:
        from lmcache.v1.multiprocess.transport.factory import RequestClientFactory

        self._client: Any = RequestClientFactory.create(address)
        if not self._client.ping(None).result(ANSWER_S):
            raise OSError("the server did not answer a ping")
        self._regions = Region(nbytes), Region(nbytes)
        self._nbytes = nbytes
        self._contexts: list[Any] = []
        self._pages = self._request = 0

    def regions(self) -> tuple[Region, Region]:
        return self._regions

    def shape(self, page_bytes: int, batch_pages: int) -> None:
        import torch
        from lmcache.v1.multiprocess.transfer_context import create_transfer_context

        self._pages = batch_pages
        for context in self._contexts:
            context.unregister().result(ANSWER_S)
            context.close()
        self._client.clear(True).result(ANSWER_S)  # noqa: FBT003 - its own signature
        width = page_bytes // (2 * CHUNK_TOKENS * 4 * HEADS)
        sizes = (self._nbytes // page_bytes, 2, CHUNK_TOKENS, HEADS, width)
        self._caches, self._contexts = [], []
        for number, region in enumerate(self._regions):
            cache = torch.frombuffer(region.view, dtype=torch.float32).view(sizes)
            self._caches.append({"layer": cache})
            context = create_transfer_context(
                self._caches[-1],
                instance_id=os.getpid() * 2 + number,
                req_client=self._client,
                mode="engine_driven",
            )
            context.register(self._caches[-1], f"bench-{page_bytes}", 1, 1, ANSWER_S)
            self._contexts.append(context)
        self._model = f"bench-{page_bytes}"

    def _key(self, name: int) -> Any:
        from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey

        self._request += 1
        count = self._pages * CHUNK_TOKENS
        tokens = (name % TOKENS, name // TOKENS, *range(count - 2))
        return IPCCacheServerKey(
            self._model, 1, 0, tokens, 0, count, f"request-{self._request}", num_kv_readers=1
        )

    def _blocks(self, first: int) -> list[list[int]]:
        return [list(range(first, first + self._pages))]

    def store(self, name: int, first: int) -> None:
        key = self._key(name)
        done = self._contexts[0].submit_store(
            key.request_id, key, self._caches[0], self._blocks(first), None, 1
        )
        if done.result(ANSWER_S) is not True:
            raise OSError("a store was not committed")
        self._client.end_session(key.request_id)

    def load(self, name: int, first: int) -> None:
        key = self._key(name)
        self._look(key)
        done = self._contexts[1].submit_retrieve(
            key.request_id, key, self._caches[1], self._blocks(first), None, 1
        )
        if done.result(ANSWER_S) is not True:
            raise OSError("a retrieve failed")
        self._client.end_session(key.request_id)

    def _look(self, key: Any) -> None:
        self._client.lookup(key.no_worker_id_version(), 1).result(ANSWER_S)
        found = None
        while found is None:
            found = self._client.query_prefetch_status(key.request_id).result(ANSWER_S)
        if found != self._pages:
            raise OSError(f"a lookup found {found} of {self._pages} chunks")

    def make_room(self, name: int) -> None:
        """The server evicts by itself."""

    def find(self, name: int) -> None:
        key = self._key(name)
        self._look(key)
        self._client.free_lookup_locks(key.no_worker_id_version(), 1).result(ANSWER_S)
        self._client.end_session(key.request_id)


if __name__ == "__main__":
    serve(lambda: Copying(LMCache(sys.argv[1], int(sys.argv[2]))).commands())
