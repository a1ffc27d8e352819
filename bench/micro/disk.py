"""How fast blocks come back from disk after a restart, against plain reads of the same bytes.

The agent reads with O_DIRECT into its arena and checks each page's checksum, and the client copies
from there; the peer only reads. The arena holds half of what is walked through, so every batch
comes from disk every time, as if it had not been used for long.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.agent import AgentUnderTest
from bench.micro.copies import WrongBytes
from bench.pages import Region, chain, same, space_for
from bench.peers.odirect import NAME, BareFile
from bench.rows import Row, Unit
from bench.sizes import MIB, Sizes
from bench.timing import interleaved, median

PAGE_BYTES: Final = (256 * 1024, MIB)
BATCH_BYTES: Final = 16 * MIB
EXTENT: Final = "16MiB"
WAIT_S: Final = 10.0


def disk_loads(sizes: Sizes) -> list[Row]:
    """Rows of loads after a restart. Raises WrongBytes, AgentFailed, OSError."""
    source, target = Region(sizes.working_set_bytes), Region(sizes.working_set_bytes)
    source.fill_differently()
    return [_loads(page_bytes, source, target, sizes) for page_bytes in PAGE_BYTES]


def _loads(page_bytes: int, source: Region, target: Region, sizes: Sizes) -> Row:
    blocks, batches = BATCH_BYTES // page_bytes, source.batches(BATCH_BYTES)
    keys = [chain("disk", number, blocks) for number in range(batches)]
    to = [target.pages(number, BATCH_BYTES, page_bytes) for number in range(batches)]
    with ExitStack() as stack:
        agent = stack.enter_context(
            AgentUnderTest(memory=sizes.small_arena, disk=sizes.disk, extent=EXTENT)
        )
        client = agent.client(space_for(page_bytes))
        for number in range(batches):
            stored = client.store(keys[number], source.pages(number, BATCH_BYTES, page_bytes))
            if stored.stored != blocks:
                raise WrongBytes(f"batch {number} of {blocks} blocks was not stored")
            agent.wait_until_written()  # what leaves the arena before that is lost
        client.close()
        bare = stack.enter_context(BareFile(agent.disk_folder, source))
        agent.restart()
        client = agent.client(space_for(page_bytes))
        stack.callback(client.close)

        def onggi(number: int) -> None:
            number %= batches
            if client.load(keys[number], to[number], wait_s=WAIT_S) != blocks:
                raise WrongBytes(f"batch {number} was not loaded whole")

        def by_hand(number: int) -> None:
            bare.read(number % batches * BATCH_BYTES, to[number % batches])

        target.fill(b"\0")
        onggi(0)
        if not same(to[0], source.pages(0, BATCH_BYTES, page_bytes)):
            raise WrongBytes("other bytes came back than were stored")
        around = sizes.times_around * batches
        times = interleaved([onggi, by_hand], rounds=around, warm_up=batches)
        if client.stats()["hit_disk_blocks"] < blocks * (around + batches):
            raise WrongBytes("some blocks did not come from disk")
    value, peer = (BATCH_BYTES / 2**30 / median(samples) for samples in times)
    name = f"load/disk/{page_bytes // 1024}KiB-pages/{BATCH_BYTES // MIB}MiB"
    return Row(name, value, Unit.GIB_PER_S, NAME, peer)
