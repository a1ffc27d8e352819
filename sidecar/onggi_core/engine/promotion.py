"""Disk to host: a page read, verified, and only then part of the host tier."""

from __future__ import annotations

import enum
from typing import Final

from onggi_core.engine import loads
from onggi_core.engine.actions import ReadRun
from onggi_core.engine.events import IoOutcome, ReadEnded
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.page import Block, Page, PageEvent

READS_MAX: Final = 1024
"""Pages on their way from disk at once: about a second of an NVMe's reads at 1 MiB a page. Past it
a load gets the run that is there."""
PREFETCHES_MAX: Final = 256
"""The part of READS_MAX that hints may fill, so that a load that waits always finds room."""


class Urgency(enum.Enum):
    LOAD = enum.auto()
    PREFETCH = enum.auto()


def begin(state: State, space: Space, block: Block, urgency: Urgency) -> Page | None:
    """Starts to bring a block in from disk; answers with the host page it will be in, or None if
    it is not on disk, there is no room or too much is on its way already."""
    source = block.disk
    limit = READS_MAX if urgency is Urgency.LOAD else PREFETCHES_MAX
    if source is None or not source.readable or len(state.reads) >= limit:
        return None
    state.disk.pin(space, source)
    page = state.host.place(space, block, PageEvent.PROMOTION_BEGAN, state.use())
    if page is None:
        state.disk.unpin(space, source)
        return None
    job = state.serial()
    state.reads[job] = (space, block)
    if urgency is Urgency.PREFETCH:
        state.counters.prefetched_blocks += 1
    state.actions.append(
        ReadRun(
            job=job,
            space=space.spec,
            place=source.place,
            stride_bytes=space.stride_bytes,
            offsets=(state.arena_offset(page),),
            keys=(block.key,),
            checksums=(block.checksum,),
            prefetch=urgency is Urgency.PREFETCH,
        )
    )
    return page


def ended(state: State, event: ReadEnded, now_s: float) -> None:
    """The read is over: the page joins the host tier, or is given back and the load cut short."""
    space, block = state.reads.pop(event.job)
    source, page = block.disk, block.host
    assert source is not None
    assert page is not None
    state.disk.unpin(space, source)
    (outcome,) = event.outcomes
    if outcome is IoOutcome.DONE:
        state.counters.read_bytes += space.spec.page_bytes
        page.unread = True
        state.host.seal(space, page, PageEvent.VERIFIED)
        space.ranking(state.disk.name).touch(block.key, state.use())
        loads.arrived(state, page, now_s)
        return
    state.host.drop(space, page, PageEvent.PROMOTION_FAILED)
    if outcome is IoOutcome.CORRUPT:
        state.counters.fault("corrupt")
        state.disk.drop(space, source, PageEvent.EVICTED)
        state.forget_on_disk(space, block, source.place)
    elif outcome is not IoOutcome.ABANDONED:
        state.counters.fault("read_fault")
        state.disk.drop(space, source, PageEvent.FAULTED)
        state.forget_on_disk(space, block, source.place)
    loads.failed(state, page, now_s)
