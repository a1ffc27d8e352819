"""How fast blocks go to the agent's memory and come back, against memcpy and against Redis.

Both ways whole: a load is asking, copying and giving the pin back; a store is reserving, copying
and sealing. Every store is of blocks never seen before, and the arena is full by then, so making
room is in it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.agent import AgentUnderTest
from bench.pages import Region, chain, same, space_for
from bench.peers import memcpy
from bench.peers.redis import RedisClient, RedisServer
from bench.rows import Row, Unit
from bench.sizes import MIB, Sizes
from bench.timing import Contestant, interleaved, median
from onggi import Client

PAGE_BYTES: Final = (256 * 1024, MIB)
BATCH_BYTES: Final = (MIB, 4 * MIB, 16 * MIB)


class WrongBytes(Exception):
    """A bench that measures wrong results measures nothing."""


def copies(server: RedisServer | None, sizes: Sizes) -> list[Row]:
    """Rows of load and store. server: None leaves Redis out. Raises WrongBytes, AgentFailed."""
    rows: list[Row] = []
    source, target = Region(sizes.working_set_bytes), Region(sizes.working_set_bytes)
    source.fill_differently()
    for page_bytes in PAGE_BYTES:
        with ExitStack() as stack:
            agent = stack.enter_context(AgentUnderTest(memory=sizes.arena))
            client = agent.client(space_for(page_bytes))
            stack.callback(client.close)
            redis = server.client() if server is not None else None
            bench = _Copies(client, redis, source, target, page_bytes, sizes.times_around)
            for batch_bytes in BATCH_BYTES:
                rows += bench.loads(batch_bytes)
            for batch_bytes in BATCH_BYTES:
                rows += bench.stores(batch_bytes)
            if redis is not None:
                redis.forget_all()
    return rows


class _Copies:
    """One page size."""

    def __init__(
        self,
        client: Client,
        redis: RedisClient | None,
        source: Region,
        target: Region,
        page_bytes: int,
        times_around: int,
    ) -> None:
        self._client = client
        self._redis = redis
        self._source = source
        self._target = target
        self._page_bytes = page_bytes
        self._times_around = times_around

    def loads(self, batch_bytes: int) -> list[Row]:
        """Of batches that were stored before; each round takes the next one."""
        blocks, batches = batch_bytes // self._page_bytes, self._source.batches(batch_bytes)
        keys = [chain(f"load/{batch_bytes}", number, blocks) for number in range(batches)]
        to = [self._target.pages(n, batch_bytes, self._page_bytes) for n in range(batches)]
        for number in range(batches):
            pages = self._source.pages(number, batch_bytes, self._page_bytes)
            if self._client.store(keys[number], pages).stored != blocks:
                raise WrongBytes(f"batch {number} of {blocks} blocks was not stored")
            if self._redis is not None:
                self._redis.store(keys[number], pages)

        def onggi(number: int) -> None:
            number %= batches
            if self._client.load(keys[number], to[number]) != blocks:
                raise WrongBytes(f"batch {number} was not loaded whole")

        def by_memcpy(number: int) -> None:
            memcpy.copy_batch(self._target, self._source, number, batch_bytes)

        def by_redis(number: int) -> None:
            assert self._redis is not None
            if None in self._redis.load(keys[number % batches]):
                raise WrongBytes(f"redis lost a page of batch {number}")

        self._target.fill(b"\0")
        onggi(0)
        if not same(to[0], self._source.pages(0, batch_bytes, self._page_bytes)):
            raise WrongBytes("other bytes came back than were stored")
        rows = self._measure("load", batch_bytes, onggi, by_memcpy, by_redis)
        if self._redis is not None:
            self._redis.forget_all()
        return rows

    def stores(self, batch_bytes: int) -> list[Row]:
        """Of new blocks in each round; Redis overwrites what it has, which is what it does best."""
        blocks, batches = batch_bytes // self._page_bytes, self._source.batches(batch_bytes)
        rounds = (1 + self._times_around) * batches
        keys = [chain(f"store/{batch_bytes}", number, blocks) for number in range(rounds)]
        pages = [self._source.pages(n, batch_bytes, self._page_bytes) for n in range(batches)]

        def onggi(number: int) -> None:
            if self._client.store(keys[number], pages[number % batches]).stored != blocks:
                raise WrongBytes(f"batch {number} was not stored whole")

        def by_memcpy(number: int) -> None:
            memcpy.copy_batch(self._target, self._source, number, batch_bytes)

        def by_redis(number: int) -> None:
            assert self._redis is not None
            self._redis.store(keys[number % batches], pages[number % batches])

        rows = self._measure("store", batch_bytes, onggi, by_memcpy, by_redis)
        if self._redis is not None:
            self._redis.forget_all()
        return rows

    def _measure(
        self,
        what: str,
        batch_bytes: int,
        onggi: Contestant,
        by_memcpy: Contestant,
        by_redis: Contestant,
    ) -> list[Row]:
        contestants = [onggi, by_memcpy]
        names = [memcpy.NAME]
        if self._redis is not None:
            contestants.append(by_redis)
            names.append(self._redis.name)
        times = interleaved(
            contestants,
            rounds=self._times_around * self._source.batches(batch_bytes),
            warm_up=self._source.batches(batch_bytes),
        )
        value, *peers = (batch_bytes / 2**30 / median(samples) for samples in times)
        page, batch = f"{self._page_bytes // 1024}KiB-pages", f"{batch_bytes // MIB}MiB"
        name = f"{what}/host/{page}/{batch}"
        return [
            Row(name, value, Unit.GIB_PER_S, peer, rate)
            for peer, rate in zip(names, peers, strict=True)
        ]
