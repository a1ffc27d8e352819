"""How fast blocks go to disk and come back, against fio on a file beside the tier.

Read: LOAD_PREPARE of blocks that lie on disk alone, until they are in the arena and verified; four
batches are asked for ahead, so that the disk never waits for the bench. Write: blocks never seen
before, sealed, until the tier has them. No bytes are copied on this side of the arena either way:
what that costs is in load_* and store_*. Bytes are counted by the agent, as read and written.

The tier is written full before anything is measured, as one in use is: with the first write of a
place the filesystem notes that it is no longer blank, and fio's file is laid out, too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from bench.agent import AgentUnderTest, space_for
from bench.children import ChildFailed
from bench.entries import Against, Entry, Row, Unit
from bench.micro.copies import WrongBytes
from bench.pages import Region, chain, same
from bench.peers.fio import ENGINES, Fio, Rates, why_absent
from bench.sizes import MIB, Sizes
from bench.timing import median
from onggi import Client, LoadOutcome, StoreOutcome
from onggi_core.engine.state import CHUNK_BYTES, RUN_BYTES
from onggi_sidecar.disk.schedule import THREADS

ONGGI: Final = "onggi"
DIRECTIONS: Final = ("read", "write", "mixed")
PAGE_BYTES: Final = (MIB, 256 * 1024)
BATCH_BYTES: Final = 16 * MIB
AHEAD: Final = 3
ARENA_BYTES: Final = 192 * MIB
DISK_BYTES: Final = 16 * ARENA_BYTES
"""More than a turn writes, so that what is read stays."""
READ_BYTES: Final = 3 * ARENA_BYTES
"""Read around and around: nothing of it is still in the arena when it comes up again."""
WAIT_S: Final = 10.0
POLL_S: Final = 0.004
DIRTY_MAX: Final = 32 * MIB
"""A store may run so far ahead of the disk: beside what is being written and read that is all the
room there is, and more would leave the arena before it is written."""
HOW: Final = (
    "1 MiB pages. Bytes counted by the agent, over turns of some seconds taken with fio's: "
    f"O_DIRECT, the same block size, depth {THREADS}, the best of psync, io_uring, and "
    "io_uring with its buffers on huge pages as the arena is. Both go over places that were "
    "written before: a full tier, a file laid out. The agent also verifies or computes each "
    "page's checksum; nothing is copied between arena and client. Mixed: both at once, "
    "summed; fio has half of the depth each way, the agent lets loads go first. The agent's "
    f"transfers are pages in a row, {CHUNK_BYTES // MIB} MiB up and {RUN_BYTES // MIB} MiB "
    "down at most."
)


def disks(sizes: Sizes) -> list[Entry]:
    """disk_read, disk_write and disk_mixed. Raises WrongBytes, AgentFailed."""
    rows: dict[str, list[Row]] = {direction: [] for direction in DIRECTIONS}
    for page_bytes in PAGE_BYTES:
        for direction, some in _measured(page_bytes, sizes).items():
            rows[direction] += some
    return [
        Entry(main, (Against("fio", 0.95),), "python -m bench disk", HOW, tuple(others))
        for main, *others in rows.values()
    ]


def _measured(page_bytes: int, sizes: Sizes) -> dict[str, list[Row]]:
    absent = {"fio": why} if (why := why_absent()) else {}
    with ExitStack() as stack:
        disk = f"{DISK_BYTES // MIB}MiB"
        arena = f"{ARENA_BYTES // MIB}MiB"
        agent = stack.enter_context(AgentUnderTest(memory=arena, disk=disk, extent="16MiB"))
        client = agent.client(space_for(page_bytes))
        stack.callback(client.close)
        work = _Work(client, page_bytes)
        if not sizes.quick:
            work.write_full()
        work.fill()
        fio = None
        if not absent:
            try:
                fio = Fio(agent.disk_folder, READ_BYTES, THREADS)
            except ChildFailed as failed:
                absent["fio"] = str(failed)
        rates = _in_turns(work, fio, page_bytes, sizes)
    return {direction: _rows(direction, page_bytes, rates, absent) for direction in DIRECTIONS}


def _in_turns(
    work: _Work, fio: Fio | None, page_bytes: int, sizes: Sizes
) -> dict[tuple[str, str], list[Rates]]:
    """What each contestant reached in each direction. The order turns, too: what one of them leaves
    in the device's caches and queues meets all of them alike."""
    rates: dict[tuple[str, str], list[Rates]] = {}
    contestants = (ONGGI, *ENGINES) if fio is not None else (ONGGI,)
    for turn in range(sizes.disk_turns):
        first = turn % len(contestants)
        for direction in DIRECTIONS:
            for name in contestants[first:] + contestants[:first]:
                if name == ONGGI or fio is None:
                    got = work.run(direction, sizes.disk_turn_s)
                else:
                    got = fio.run(name, direction, page_bytes, sizes.disk_turn_s)
                rates.setdefault((direction, name), []).append(got)
    return rates


def _rows(
    direction: str,
    page_bytes: int,
    rates: dict[tuple[str, str], list[Rates]],
    absent: dict[str, str],
) -> list[Row]:
    """The sum of both ways first; of a mixed run also each way by itself."""
    name = f"disk_{direction}" + ("" if page_bytes == MIB else f"/{page_bytes // 1024}KiB-pages")

    def row(name: str, of: Callable[[Rates], float]) -> Row:
        peers = {
            f"fio_{engine}": median(list(map(of, rates[direction, engine]))) / 2**30
            for engine in ENGINES
            if (direction, engine) in rates
        }
        best = {"fio": max(peers.values())} if peers else {}
        value = median(list(map(of, rates[direction, ONGGI]))) / 2**30
        return Row(name, value, Unit.GIB_PER_S, {**best, **peers}, absent)

    rows = [row(name, lambda of: of.read + of.written)]
    if direction == "mixed":
        rows.append(row(f"{name}/read", lambda of: of.read))
        rows.append(row(f"{name}/written", lambda of: of.written))
    return rows


@dataclass
class _Work:
    """Onggi's side, at one page size."""

    client: Client
    page_bytes: int

    def __post_init__(self) -> None:
        self._blocks = BATCH_BYTES // self.page_bytes
        self._source = Region(BATCH_BYTES)
        self._source.fill_differently()
        self._pages = self._source.pages(0, BATCH_BYTES, self.page_bytes)
        self._read_keys: list[list[bytes]] = []
        self._next_read = self._next_store = 0

    def write_full(self) -> None:
        """Until no place of the tier is blank."""
        for _ in range(DISK_BYTES // BATCH_BYTES):
            self._seal_new()

    def fill(self) -> None:
        """Store what is going to be read, see it written, and compare one batch."""
        batches = READ_BYTES // BATCH_BYTES
        self._read_keys = [chain("read", number, self._blocks) for number in range(batches)]
        self._refill()
        target = Region(BATCH_BYTES)
        to = target.pages(0, BATCH_BYTES, self.page_bytes)
        if self.client.load(self._read_keys[0], to, wait_s=WAIT_S) != self._blocks:
            raise WrongBytes("the first batch did not come from disk")
        if not same(to, self._pages):
            raise WrongBytes("other bytes came back than were stored")

    def _refill(self) -> None:
        """Store again what the tier gave up for what was written since."""
        for keys in self._read_keys:
            if self.client.lookup(keys).pending < len(keys):
                self._store(keys)
                self._until_written(0)

    def run(self, direction: str, seconds: float) -> Rates:
        """Bytes a second that the agent read and wrote."""
        ways = {"read": [self._read], "write": [self._write], "mixed": [self._read, self._write]}
        self._refill()
        before, begin_s = self._stats(), time.perf_counter()
        until_s = begin_s + seconds
        threads = [
            threading.Thread(target=way, args=(until_s,), daemon=True) for way in ways[direction]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if direction == "write":
            self._until_written(0)
        after, took_s = self._stats(), time.perf_counter() - begin_s
        self._until_written(0)
        read = after["read_bytes"] - before["read_bytes"]
        written = after["written_bytes"] - before["written_bytes"]
        return Rates(read / took_s, written / took_s)

    def _read(self, until_s: float) -> None:
        asked: deque[Any] = deque()
        while time.perf_counter() < until_s or asked:
            if time.perf_counter() < until_s:
                keys = self._read_keys[self._next_read % len(self._read_keys)]
                self._next_read += 1
                asked.append(self.client.load_prepare(keys, wait_s=WAIT_S))
                if len(asked) <= AHEAD:
                    continue
            load = asked.popleft().wait(WAIT_S)
            self.client.finish_load(load, LoadOutcome.LOADED)

    def _write(self, until_s: float) -> None:
        while time.perf_counter() < until_s:
            self._seal_new()

    def _seal_new(self) -> None:
        """A batch of blocks never seen before, of whatever bytes are in the pages."""
        keys = chain("write", self._next_store, self._blocks)
        self._next_store += 1
        ticket = self.client.store_prepare(keys)
        self.client.finish_store(ticket, StoreOutcome.SEALED)
        self._until_written(DIRTY_MAX // self.page_bytes)

    def _store(self, keys: list[bytes]) -> None:
        self.client.store(keys, self._pages)

    def _until_written(self, dirty_max: int) -> None:
        """Until no more than so many blocks wait for the disk."""
        give_up_s = time.monotonic() + WAIT_S * 3
        while True:
            stats = self._stats()
            dirty = stats["dirty_blocks"] + (stats["writes_in_flight"] if not dirty_max else 0)
            if dirty <= dirty_max:
                return
            if time.monotonic() > give_up_s:
                raise WrongBytes(f"{dirty} blocks never got to disk")
            time.sleep(POLL_S)

    def _stats(self) -> dict[str, Any]:
        stats = self.client.stats()
        if not stats:
            raise WrongBytes("the agent does not answer")
        return stats
