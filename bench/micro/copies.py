"""How fast blocks go to the agent's memory and come back, against whoever else does that.

Both ways whole: a load is asking, copying and giving the pin back; a store is reserving, copying
and sealing. Every store is of blocks never seen before, and the arena is full by then, so making
room is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from bench.agent import AgentUnderTest, space_for
from bench.children import ChildFailed
from bench.entries import Against, Entry, Row, Target, Unit
from bench.pages import Region, chain, same
from bench.peers import memcpy
from bench.peers.redis import RedisServer, why_absent
from bench.peers.worker import Worker, if_possible, lmcache, mooncake
from bench.sizes import MIB, Sizes
from bench.timing import Contestant, interleaved, median
from onggi import Client

MAIN_PAGE: Final = MIB
PAGE_BYTES: Final = (MIB, 256 * 1024, 16 * 1024)
BATCH_BYTES: Final = (4 * MIB, 16 * MIB)
SMALL_PAGE: Final = 64 * 1024
SMALL_SHARE: Final = 4
"""Of smaller pages a quarter as much is walked through: some take a second for a batch of them."""
TARGETS: Final[tuple[Target, ...]] = (
    Against("memcpy", 0.9),
    Against("mooncake", 1.0),
    Against("lmcache_mp", 1.5),
)
HOW: Final = (
    "1 MiB pages. onggi: 4 MiB and more by two threads, where that is faster. memcpy: one memmove "
    "of the batch. mooncake: batch_get_into, batch_put_from "
    "through mooncake_client, pages in memory shared with it; mooncake_embedded: the same calls, "
    "the store in the caller's own process. lmcache_mp: LOOKUP and RETRIEVE, or STORE, by its own "
    "transfer context over shared memory, one chunk a page. redis: MGET, MSET on a unix socket, "
    "values left where its client puts them. All walk through the same bytes in the same batches."
)


class WrongBytes(Exception):
    """A bench that measures wrong results measures nothing."""


def loads(sizes: Sizes) -> list[Entry]:
    """load_4mib and load_16mib. Raises WrongBytes, AgentFailed."""
    return _entries("load", sizes)


def stores(sizes: Sizes) -> list[Entry]:
    """store_4mib and store_16mib. Raises WrongBytes, AgentFailed."""
    return _entries("store", sizes)


def _entries(what: str, sizes: Sizes) -> list[Entry]:
    rows: dict[int, list[Row]] = {batch: [] for batch in BATCH_BYTES}
    with ExitStack() as stack:
        field = _Field(stack, sizes)
        for page_bytes in PAGE_BYTES if not sizes.quick else (MIB, 16 * 1024):
            for batch_bytes in BATCH_BYTES:
                rows[batch_bytes].append(field.measure(what, page_bytes, batch_bytes))
    return [
        Entry(main, TARGETS, f"python -m bench {what}", HOW, tuple(others))
        for main, *others in rows.values()
    ]


class _Field:
    """Everybody who takes part, for as long as `stack` is open."""

    def __init__(self, stack: ExitStack, sizes: Sizes) -> None:
        self._sizes = sizes
        self._source, self._target = (Region(sizes.working_set_bytes) for _ in range(2))
        self._source.fill_differently()
        self._absent: dict[str, str] = {}
        self._workers: dict[str, Worker] = {}
        if sizes.peers:
            nbytes = sizes.working_set_bytes
            for name, begin in (
                ("mooncake", lambda: mooncake("shm", nbytes)),
                ("mooncake_embedded", lambda: mooncake("embedded", nbytes)),
                ("lmcache_mp", lambda: lmcache(nbytes)),
            ):
                if (worker := if_possible(stack, self._absent, name, begin)) is not None:
                    self._workers[name] = worker
        else:
            self._absent = dict.fromkeys(("mooncake", "mooncake_embedded", "lmcache_mp"), "asked")
        if absent := why_absent():
            self._absent["redis"] = absent
        self._redis = stack.enter_context(RedisServer()).client() if not absent else None

    def measure(self, what: str, page_bytes: int, batch_bytes: int) -> Row:
        """One row. What a peer could not do at this size is said in it."""
        absent = dict(self._absent)
        around = self._source.batches(batch_bytes)
        if page_bytes < SMALL_PAGE:
            around = max(1, around // SMALL_SHARE)
        rounds = self._sizes.times_around * around
        with ExitStack() as stack:
            agent = stack.enter_context(AgentUnderTest(memory=self._sizes.arena))
            client = agent.client(space_for(page_bytes))
            stack.callback(client.close)
            batch = _Batches(client, (self._source, self._target), page_bytes, batch_bytes, around)
            names, contestants = ["", "memcpy"], [batch.contestant(what, around + rounds)]
            contestants.append(self._by_memcpy(batch_bytes))
            for name, worker in self._workers.items():
                try:
                    worker.prepare(what, page_bytes, batch_bytes, around)
                    contestants.append(_surviving(worker.round, absent, name))
                    names.append(name)
                except ChildFailed as failed:
                    absent[name] = " ".join(str(failed).split())[-400:]
            if self._redis is not None:
                contestants.append(self._by_redis(what, batch))
                names.append("redis")
            times = interleaved(contestants, rounds=rounds, warm_up=around)
            if self._redis is not None:
                self._redis.forget_all()
        rates = {
            name: batch_bytes / 2**30 / median(took)
            for name, took in zip(names, times, strict=True)
            if name not in absent
        }
        value = rates.pop("")
        return Row(_name(what, page_bytes, batch_bytes), value, Unit.GIB_PER_S, rates, absent)

    def _by_memcpy(self, batch_bytes: int) -> Contestant:
        def copy(number: int) -> None:
            memcpy.copy_batch(self._target, self._source, number, batch_bytes)

        return copy

    def _by_redis(self, what: str, batch: _Batches) -> Contestant:
        redis, pages = self._redis, batch.pages
        assert redis is not None
        keys = [chain("redis", number, batch.blocks) for number in range(len(pages))]
        if what == "load":
            for number, some in enumerate(pages):
                redis.store(keys[number], some)

        def store(number: int) -> None:
            redis.store(keys[number % len(keys)], pages[number % len(pages)])

        def load(number: int) -> None:
            if None in redis.load(keys[number % len(keys)]):
                raise WrongBytes(f"redis lost a page of batch {number}")

        return store if what == "store" else load


def _surviving(round_: Contestant, absent: dict[str, str], name: str) -> Contestant:
    """A peer that fails on the way is out, and does not end the bench."""

    def tried(number: int) -> float | None:
        if name in absent:
            return 0.0
        try:
            return round_(number)
        except ChildFailed as failed:
            absent[name] = " ".join(str(failed).split())[-400:]
            return 0.0

    return tried


class _Batches:
    """Onggi's side: one page size and one batch size."""

    def __init__(
        self,
        client: Client,
        sides: tuple[Region, Region],
        page_bytes: int,
        batch_bytes: int,
        count: int,
    ) -> None:
        """count: batches that are walked through."""
        self._client = client
        self.blocks = batch_bytes // page_bytes
        source, target = sides
        self.pages = [source.pages(n, batch_bytes, page_bytes) for n in range(count)]
        self._to = [target.pages(n, batch_bytes, page_bytes) for n in range(count)]

    def contestant(self, what: str, rounds: int) -> Contestant:
        """For `rounds` rounds. A load's blocks are stored here, and one batch is compared."""
        make: Callable[[int], Contestant] = self._stores if what == "store" else self._loads
        return make(rounds)

    def _stores(self, rounds: int) -> Contestant:
        keys = [chain("store", number, self.blocks) for number in range(rounds)]

        def store(number: int) -> None:
            self._store(keys[number], number)

        return store

    def _loads(self, rounds: int) -> Contestant:
        del rounds
        keys = [chain("load", number, self.blocks) for number in range(len(self.pages))]
        for number, chained in enumerate(keys):
            self._store(chained, number)

        def load(number: int) -> None:
            number %= len(keys)
            if self._client.load(keys[number], self._to[number]) != self.blocks:
                raise WrongBytes(f"batch {number} was not loaded whole")

        for page in self._to[0]:
            page[:] = bytes(page.nbytes)
        load(0)
        if not same(self._to[0], self.pages[0]):
            raise WrongBytes("other bytes came back than were stored")
        return load

    def _store(self, keys: list[bytes], number: int) -> None:
        stored = self._client.store(keys, self.pages[number % len(self.pages)]).stored
        if stored != self.blocks:
            raise WrongBytes(f"{stored} of {self.blocks} blocks of batch {number} were stored")


def _name(what: str, page_bytes: int, batch_bytes: int) -> str:
    name = f"{what}_{batch_bytes // MIB}mib"
    return name if page_bytes == MAIN_PAGE else f"{name}/{page_bytes // 1024}KiB-pages"
