"""Host to disk, behind the client's back: a store never waits for it.

Every sealed block goes down as soon as the writer has room, so that a restart finds it and its
host page can be given up at once when it turns cold.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine.actions import WriteRun
from onggi_core.engine.events import IoOutcome, WriteEnded
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.page import Block, Page, PageEvent

WRITES_MAX: Final = 64
"""Pages on their way to disk at once: enough for the device's queue; the rest wait unpinned in
`dirty`, so that a slow disk costs hits after a restart but never room in the host tier."""

WRITES_SHARE: Final = 4
"""And no more than one part in so many of the arena: its pages are pinned as long as a hung disk
keeps them, and 64 large ones can be all there are."""


def pump(state: State) -> None:
    """Starts as many writes as may be under way, oldest block first."""
    pinned_bytes = sum(space.stride_bytes for space, _ in state.writes.values())
    most_bytes = state.extents_ready * state.facts.extent_bytes // WRITES_SHARE
    while state.dirty and len(state.writes) < WRITES_MAX:
        if state.writes and pinned_bytes >= most_bytes:
            return
        block, space = state.dirty.popitem(last=False)
        source = block.host
        assert source is not None
        target = state.disk.place(space, block, PageEvent.RESERVED, state.use())
        if target is None:
            state.counters.unwritten_blocks += 1
            continue
        state.host.pin(space, source)
        pinned_bytes += space.stride_bytes
        job = state.serial()
        state.writes[job] = (space, block)
        state.actions.append(_write(state, job, space, block, source, target))


def ended(state: State, event: WriteEnded) -> None:
    """The write is over: the block is on disk too, or its place is given back or retired."""
    space, block = state.writes.pop(event.job)
    source, target = block.host, block.disk
    assert source is not None
    assert target is not None
    state.host.unpin(space, source)
    (outcome,) = event.outcomes
    if outcome is IoOutcome.DONE:
        (block.checksum,) = event.checksums
        state.disk.seal(space, target, PageEvent.SEALED)
        state.counters.written_bytes += space.spec.page_bytes
    elif outcome is IoOutcome.NO_SPACE:
        state.counters.fault("no_space")
        state.disk.drop(space, target, PageEvent.ABANDONED)
        _rest_region(state, target.place)
        state.dirty[block] = space
    elif outcome is IoOutcome.ABANDONED:
        state.counters.unwritten_blocks += 1
        state.disk.drop(space, target, PageEvent.ABANDONED)
    else:
        state.counters.fault("write_fault")
        state.disk.drop(space, target, PageEvent.FAULTED)
    pump(state)


def _write(
    state: State, job: int, space: Space, block: Block, source: Page, target: Page
) -> WriteRun:
    return WriteRun(
        job=job,
        space=space.spec,
        place=target.place,
        stride_bytes=space.stride_bytes,
        offsets=(state.arena_offset(source),),
        keys=(block.key,),
        parents=(block.parent,),
    )


def _rest_region(state: State, place: int) -> None:
    """A segment could not be made: somebody else filled the filesystem. It and all that are not
    made yet are left alone for a while, and the tier goes on with the segments it has. So a block
    is tried twice at most, and a full filesystem is never a loop."""
    slab = state.disk.slab
    for region in (place // slab.region_bytes, *slab.spare):
        slab.withdraw(region)
        state.resting_regions[region] = None
