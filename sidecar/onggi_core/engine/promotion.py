"""Disk to host: pages read, verified, and only then part of the host tier."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from onggi_core.engine import loads
from onggi_core.engine.actions import HurryRead, ReadRun
from onggi_core.engine.events import IoOutcome, ReadEnded
from onggi_core.engine.space import Space
from onggi_core.engine.state import CHUNK_BYTES, RUN_BYTES, Read, State
from onggi_core.index.blocks import HINTED, UNREAD
from onggi_core.index.ids import as_run
from onggi_core.page import READABLE, PageEvent

READS_MAX: Final = 1024
"""Runs on their way from disk at once: a second or two of an NVMe's reads. Past it a load gets the
blocks that are there."""
PREFETCHES_MAX: Final = 256
"""The part of READS_MAX that hints may fill, so that a load that waits always finds room."""
SPREAD: Final = 8
"""Runs that a read is spread over before they become longer than a chunk: as many as the disk has
in work at once, so that what a run saves in ends is no longer wait."""

_SEVERITY: Final = (
    IoOutcome.ABANDONED,
    IoOutcome.DONE,
    IoOutcome.CORRUPT,
    IoOutcome.NO_SPACE,
    IoOutcome.FAULT,
)
"""What a read says of the device, least first."""


class Urgency(enum.Enum):
    LOAD = enum.auto()
    PREFETCH = enum.auto()


def begin(state: State, space: Space, blocks: Sequence[int], urgency: Urgency, now_s: float) -> int:
    """Starts to bring in blocks that the host tier lacks, in order; answers how many of the first
    ones are on their way: fewer than asked where one is not on disk, there is no room, too much is
    on its way already or the disk's breaker is open."""
    on_disk = state.disk.pages.states
    ready = 0
    while ready < len(blocks) and on_disk[blocks[ready]] in READABLE:
        ready += 1
    limit = READS_MAX if urgency is Urgency.LOAD else PREFETCHES_MAX
    use = state.use()
    state.disk.pages.pin(blocks[:ready])
    state.host.make_room(space, ready, use)
    begun = 0
    most_bytes = min(RUN_BYTES, max(CHUNK_BYTES, ready * space.stride_bytes // SPREAD))
    while begun < ready and len(state.reads) < limit and state.breaker.may_read(now_s):
        length = _run_length(state, space, blocks[begun:ready], most_bytes)
        given = _take(state, space, blocks[begun : begun + length], use)
        if not given:
            break
        _read(state, space, tuple(blocks[begun : begun + given]), urgency, now_s)
        begun += given
    state.disk.unpin(blocks[begun:ready])
    if urgency is Urgency.PREFETCH:
        state.counters.prefetched_blocks += begun
        for block in blocks[:begun]:
            state.blocks.flags[block] |= HINTED
    return begun


_BEGAN: Final = PageEvent.PROMOTION_BEGAN


def _take(state: State, space: Space, blocks: Sequence[int], use: int) -> int:
    """Host pages for the first of these, wherever they are free; how many. One read fills pages
    anywhere in memory. Were they to be in a row, reads would be no longer than what was given up
    last, whatever lies in a row on disk."""
    given = 0
    while given < len(blocks):
        row = state.host.take(space, blocks[given:], _BEGAN, use)
        if not row:
            break
        given += row
    return given


def _run_length(state: State, space: Space, blocks: Sequence[int], most_bytes: int) -> int:
    """How many of the first blocks lie one after the other in one file, up to most_bytes."""
    place, stride = state.disk.pages.place, space.stride_bytes
    expected, length = place(blocks[0]), 0
    in_file = state.facts.segment_bytes - expected % state.facts.segment_bytes
    for block in blocks[: max(1, min(most_bytes, in_file) // stride)]:
        if place(block) != expected:
            break
        expected += stride
        length += 1
    return length


def _read(
    state: State, space: Space, blocks: tuple[int, ...], urgency: Urgency, now_s: float
) -> None:
    job, index = state.serial(), state.blocks
    state.reads[job] = Read(space, blocks, now_s)
    state.breaker.began(now_s)
    state.host.dead.add(
        [block for block in blocks if block in state.disk.dead.blocks], state.host.pages.states
    )
    state.actions.append(
        ReadRun(
            job=job,
            space=space.spec,
            place=index.disk.place(blocks[0]),
            stride_bytes=space.stride_bytes,
            offsets=index.host.offsets(blocks, state.facts.data_offset),
            keys=tuple(index.keys_of(blocks)),
            checksums=tuple([index.checksum(block) for block in blocks]),
            prefetch=urgency is Urgency.PREFETCH,
        )
    )
    if urgency is Urgency.PREFETCH:
        state.hinted.update(dict.fromkeys(blocks, job))


def hurry(state: State, block: int) -> None:
    """Somebody waits for a block that may be on its way on a hint alone."""
    job = state.hinted.get(block)
    if job is not None:
        for other in state.reads[job].blocks:
            del state.hinted[other]
        state.actions.append(HurryRead(job))


def ended(state: State, event: ReadEnded, now_s: float) -> None:
    """A read is over: its pages join the host tier, or are given back and loads cut short."""
    read = state.reads.pop(event.job)
    worst = max(event.outcomes, key=_SEVERITY.index)
    state.breaker.ended(worst, began_s=read.began_s, now_s=now_s)
    state.disk.unpin(read.blocks)
    came = as_run(
        [
            block
            for block, outcome in zip(read.blocks, event.outcomes, strict=True)
            if outcome is IoOutcome.DONE
        ]
    )
    state.host.seal(came, PageEvent.VERIFIED)
    for block, outcome in zip(read.blocks, event.outcomes, strict=True):
        state.hinted.pop(block, None)
        if outcome is IoOutcome.DONE:
            state.counters.read_bytes += read.space.spec.page_bytes
            state.blocks.flags[block] |= UNREAD
            state.host.ranking.recall(block, state.disk.ranking.count_of(block))
            loads.arrived(state, block, now_s)
        else:
            _failed(state, read.space, block, outcome, now_s)
    state.show(read.space, came)


def _failed(state: State, space: Space, block: int, outcome: IoOutcome, now_s: float) -> None:
    state.blocks.flags[block] &= ~HINTED
    loads.failed(state, block, now_s)
    state.host.drop(space, block, PageEvent.PROMOTION_FAILED)
    if outcome is IoOutcome.ABANDONED:
        return
    corrupt = outcome is IoOutcome.CORRUPT
    state.counters.fault("corrupt" if corrupt else "read_fault")
    place = state.disk.drop(space, block, PageEvent.EVICTED if corrupt else PageEvent.FAULTED)
    state.forget_on_disk(space, block, place)
