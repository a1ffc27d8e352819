"""What the agent takes beside its arena, and how soon it knows a million blocks again."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

from bench.agent import AgentUnderTest, space_for
from bench.entries import AtMost, Entry, Row, Unit
from bench.pages import chain
from bench.sizes import MIB, Sizes
from onggi import ROOT, StoreOutcome
from onggi_core.engine.actions import Answer
from onggi_core.engine.engine import Engine
from onggi_core.engine.events import Asked, ExtentTouched, SessionOpened
from onggi_core.engine.state import Facts
from onggi_core.wire.replies import StorePrepared
from onggi_core.wire.requests import Hello, StoreComplete, StorePrepare
from onggi_sidecar.disk.recovery import recover
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES, pack_segment_header, segment_path
from onggi_sidecar.heap import keep_large_apart

PAGE_BYTES: Final = 4096
CHAIN_BLOCKS: Final = 128
EXTENT_BYTES: Final = 64 * MIB
ARENA: Final = "64MiB"
STARTS: Final = 3
COUNT_S: Final = 300.0
COMMAND: Final = "python -m bench memory"
IDLE_HOW: Final = (
    "RssAnon and RssFile of an agent without clients: everything resident but the arena, shared "
    "libraries counted in full. Both tiers are on."
)
INDEX_HOW: Final = (
    "RssAnon of a process that steps the agent's engine, its heap set as the agent's, before and "
    "after storing chains of "
    f"{CHAIN_BLOCKS} blocks into its host tier, by the block. Row adopted: an agent that found as "
    "many blocks on disk, less the same agent idle."
)
ADOPT_HOW: Final = (
    "From the start of the agent's process to its first answer that counts all blocks; a page "
    "table written by the agent's own code, sealed, with segment files of holes. Row "
    "empty: the same start over an empty tier."
)


def memory(sizes: Sizes) -> list[Entry]:
    """rss_idle_mib, bytes_per_block and readopt_1m_s. Raises AgentFailed."""
    blocks = sizes.index_blocks
    in_engine = _engine_bytes(blocks) / blocks
    disk_bytes = 2 * blocks * PAGE_BYTES + 64 * MIB
    with AgentUnderTest(memory=ARENA, disk=f"{disk_bytes // MIB}MiB") as agent:
        idle = agent.beyond_arena_bytes()
        empty = _starts(agent, 0)
        agent.stop()
        _fill(agent.disk_folder / "tier", disk_bytes, blocks)
        adopted = _starts(agent, blocks)
        grown = agent.beyond_arena_bytes() - idle
    half = sorted(empty)[len(empty) // 2]
    took = sorted(adopted)[len(adopted) // 2]
    return [
        Entry(Row("rss_idle_mib", idle / MIB, Unit.MIB), (AtMost(60.0),), COMMAND, IDLE_HOW),
        Entry(
            Row("bytes_per_block", in_engine, Unit.BYTES),
            (AtMost(200.0),),
            COMMAND,
            INDEX_HOW,
            (Row("bytes_per_block/adopted", grown / blocks, Unit.BYTES),),
        ),
        Entry(
            Row("readopt_1m_s", took, Unit.SECONDS),
            (AtMost(2.0),),
            COMMAND,
            ADOPT_HOW,
            (Row("readopt_1m_s/empty", half, Unit.SECONDS),),
        ),
    ]


def _starts(agent: AgentUnderTest, blocks: int) -> list[float]:
    """Seconds until an agent that is started again counts so many blocks on disk."""
    times = []
    for _ in range(STARTS):
        if agent.running:
            agent.stop()
        begin_s = time.perf_counter()
        agent.launch()
        agent.wait_until(lambda stats: stats["disk_pages"] >= blocks, f"{blocks} blocks on disk")
        times.append(time.perf_counter() - begin_s)
    return times


def _fill(folder: Path, disk_bytes: int, blocks: int) -> None:
    """A tier that holds `blocks` pages of 4 KiB, as the agent would have left it."""
    shutil.rmtree(folder)
    folder.mkdir(mode=0o770)
    tier = recover(folder, budget_bytes=disk_bytes, dice=os.urandom)
    table, segment_bytes = tier.table, tier.plan.segment_bytes
    spec, written = space_for(PAGE_BYTES), 0
    for number in range(tier.plan.segments):
        if written >= blocks:
            break
        with segment_path(folder, number).open("wb") as segment:
            segment.write(pack_segment_header(number, table.tier_uuid, segment_bytes))
            segment.truncate(SEGMENT_HEADER_BYTES + segment_bytes)
        table.assign(number, PAGE_BYTES)
        room = segment_bytes // PAGE_BYTES // CHAIN_BLOCKS * CHAIN_BLOCKS
        for slot in range(0, room, CHAIN_BLOCKS):
            keys = chain("adopted", written, CHAIN_BLOCKS)
            table.put(
                spec,
                number * segment_bytes + slot * PAGE_BYTES,
                stride_bytes=PAGE_BYTES,
                keys=keys,
                parents=[ROOT, *keys[:-1]],
                checksums=keys,
                now_s=time.time() - 3600 + written / blocks,
            )
            written += CHAIN_BLOCKS
            if written >= blocks:
                break
    table.seal(time.time(), wait_s=1.0)
    table.close()


def _engine_bytes(blocks: int) -> int:
    """In a process of its own: what Python keeps of anything else would be counted too."""
    spawn = multiprocessing.get_context("spawn")
    answers: Any = spawn.Queue()
    process = spawn.Process(target=_grow, args=(blocks, answers), daemon=True)
    process.start()
    grown = int(answers.get(timeout=COUNT_S))
    process.join()
    return grown


def _grow(blocks: int, answers: Any) -> None:
    keep_large_apart()  # as the agent does
    extents = -(-blocks * PAGE_BYTES // EXTENT_BYTES) + 1
    facts = Facts(bytes(16), "arena", extents * EXTENT_BYTES, 0, EXTENT_BYTES, extents)
    engine = Engine(facts)
    engine.step(SessionOpened(1), 0.0)
    engine.step(Asked(1, 1, Hello(1, "bench", (space_for(PAGE_BYTES),))), 0.0)
    for number in range(extents):
        engine.step(ExtentTouched(number), 0.0)
    _store_chain(engine, 0)
    before = _anonymous_bytes()
    for number in range(1, blocks // CHAIN_BLOCKS + 1):
        _store_chain(engine, number)
    held = engine.stats()["host_pages"]
    if held < blocks:
        raise RuntimeError(f"the engine holds {held} of {blocks} blocks")
    answers.put(_anonymous_bytes() - before)


def _store_chain(engine: Engine, number: int) -> None:
    keys = tuple(chain("grow", number, CHAIN_BLOCKS))
    actions = engine.step(Asked(1, 2, StorePrepare(0, ROOT, keys)), float(number))
    for action in actions:
        if isinstance(action, Answer) and isinstance(action.reply, StorePrepared):
            done = StoreComplete(action.reply.ticket, StoreOutcome.SEALED)
            engine.step(Asked(1, 3, done), float(number))


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not say RssAnon")
