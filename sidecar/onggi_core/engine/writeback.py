"""Host to disk, behind the client's back: a store never waits for it.

Every sealed block goes down as soon as the writer has room, so that a restart finds it and its
host page can be given up at once when it turns cold. Blocks that follow each other in a prompt go
together, to places in a row on disk, one segment of the prompt at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from onggi_core.engine import admission, uses
from onggi_core.engine.actions import WriteRun
from onggi_core.engine.events import IoOutcome, WriteEnded
from onggi_core.engine.space import Space
from onggi_core.engine.state import RUN_BYTES, State, Write
from onggi_core.index.ids import as_run
from onggi_core.page import PageEvent

WRITES_MAX: Final = 64
"""Runs on their way to disk at once: enough for the device's queue; the rest wait unpinned in
`dirty`, so that a slow disk costs hits after a restart but never room in the host tier."""

WRITES_SHARE: Final = 4
"""And no more than one part in so many of the arena: its pages are pinned as long as a hung disk
keeps them, and 64 large ones can be all there are."""


def pump(state: State) -> None:
    """Starts as many writes as may be under way, oldest block first. Room that there was none of
    for one block is not made for the next ones of that size: emptying a region takes its time."""
    full: set[int] = set()
    most_bytes = state.extents_ready * state.facts.extent_bytes // WRITES_SHARE
    while state.dirty and len(state.writes) < WRITES_MAX:
        left_bytes = most_bytes - state.writing_bytes
        if state.writes and left_bytes <= 0:
            return
        first = next(iter(state.dirty))
        space = state.space_rows[state.blocks.space[first]]
        assert space is not None, "a space with blocks is never dropped"
        pages = min(RUN_BYTES, left_bytes) // space.stride_bytes
        wanted = _run(state, space, max(1, pages))
        if not _write(state, space, wanted, may_make_room=space.stride_bytes not in full):
            full.add(space.stride_bytes)


def _run(state: State, space: Space, most: int) -> list[int]:
    """The oldest block that waits, and those that follow it in its segment, wait behind it and
    were asked for as often."""
    index, count_of = state.blocks, state.host.ranking.count_of
    run = list(islice(state.dirty, most))
    room = space.segments.end_after(index.depth[run[0]]) - index.depth[run[0]]
    count = count_of(run[0])
    for at in range(1, len(run)):
        block = run[at]
        if at >= room or index.parent[block] != run[at - 1] or count_of(block) != count:
            return run[:at]
    return run


def _write(state: State, space: Space, wanted: list[int], *, may_make_room: bool) -> bool:
    """False: the disk tier had no room, and the first block stays unwritten. Where the policy lets
    the run not in, all of it does."""
    use = state.use()
    admitted = not may_make_room or admission.room_on_disk(state, space, wanted, use)
    blocks = as_run(wanted)
    given = state.disk.take(space, blocks, PageEvent.RESERVED, use)
    if not given and not admitted:
        for block in wanted:
            del state.dirty[block]
        state.counters.unadmitted_disk_blocks += len(wanted)
        return True
    if not given:
        del state.dirty[wanted[0]]
        state.counters.unwritten_blocks += 1
        return False
    run = blocks[:given]
    for block in run:
        del state.dirty[block]
    job, index = state.serial(), state.blocks
    index.host.pin(run)
    state.writes[job] = Write(space, run)
    state.writing_bytes += given * space.stride_bytes
    keys = tuple(index.keys_of(run))
    state.actions.append(
        WriteRun(
            job=job,
            space=space.spec,
            place=index.disk.place(run[0]),
            stride_bytes=space.stride_bytes,
            offsets=index.host.offsets(run, state.facts.data_offset),
            keys=keys,
            parents=(index.parent_key(run[0]), *keys[:-1]),
        )
    )
    return True


def ended(state: State, event: WriteEnded) -> None:
    """A write is over: its blocks are on disk too, or their places are given back or retired."""
    space, run = state.writes.pop(event.job)
    state.writing_bytes -= len(run) * space.stride_bytes
    state.host.unpin(run)
    if event.outcomes.count(IoOutcome.DONE) == len(run):
        _written(state, space, run, event.checksums)
    else:
        for block, outcome, checksum in zip(run, event.outcomes, event.checksums, strict=True):
            if outcome is IoOutcome.DONE:
                _written(state, space, (block,), (checksum,))
            else:
                _failed(state, space, block, outcome)
    pump(state)


def _written(
    state: State, space: Space, blocks: Sequence[int], checksums: tuple[bytes, ...]
) -> None:
    state.blocks.set_checksums(blocks, b"".join(checksums))
    state.disk.seal(blocks, PageEvent.SEALED)
    recall, count_of = state.disk.ranking.recall, state.host.ranking.count_of
    for block in blocks:
        recall(block, count_of(block))
    if any(state.disk.ranking.counts_of(blocks)):
        uses.to_note(state, blocks)
    state.counters.written_bytes += len(blocks) * space.spec.page_bytes


def _failed(state: State, space: Space, block: int, outcome: IoOutcome) -> None:
    if outcome is IoOutcome.NO_SPACE:
        state.counters.fault("no_space")
        place = state.disk.drop(space, block, PageEvent.ABANDONED)
        _rest_segment(state, place)
        if block not in state.host.dead.blocks:
            state.dirty[block] = None
    elif outcome is IoOutcome.ABANDONED:
        state.counters.unwritten_blocks += 1
        state.disk.drop(space, block, PageEvent.ABANDONED)
    else:
        state.counters.fault("write_fault")
        state.disk.drop(space, block, PageEvent.FAULTED)


def _rest_segment(state: State, place: int) -> None:
    """A segment could not be made: somebody else filled the filesystem. It and all that are not
    made yet are left alone for a while, and the tier goes on with the segments it has. So a block
    is tried twice at most, and a full filesystem is never a loop."""
    slab = state.disk.slab
    for number in (place // slab.region_bytes, *slab.spare):
        slab.withdraw(number)
        state.resting_segments[number] = None
