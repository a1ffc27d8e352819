"""Room kept ready in the host tier, so that a store finds it without making any.

Above the high watermark blocks are given up, a few a step, until the tier is down at the low one.
What is on disk already costs nothing to give up: a demotion is a write when the block is young and
an eviction when it is cold.

Room is of one page size: a region serves one at a time. So each size has its own marks, and makes
its room from blocks of its own; a size whose pages are large beside the tier has none, and makes
room when it must.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine.state import State
from onggi_core.policy.ranking import LAST

HIGH_SHARE: Final = 64
"""Less room than one part in so many is above the high watermark."""
LOW_SHARE: Final = 32
"""One part in so many is room at the low one."""
RESERVE_BYTES_MAX: Final = 256 << 20
"""The most that is kept free: a few batches of the largest stores there are."""
GIVEN_UP_MAX: Final = 128
"""Blocks a step: some two hundred microseconds."""


def notice(state: State, stride: int) -> None:
    """After a store: whether there is less room for its size than there should be. While extents
    are still coming, full ones of a dead agent's among them, there is as much as there can be."""
    if state.extents.coming:
        return
    whole = state.extents_ready * state.facts.extent_bytes
    high_bytes = min(whole // HIGH_SHARE, RESERVE_BYTES_MAX // 2)
    if stride <= whole // HIGH_SHARE and state.host.slab.room(stride) * stride < high_bytes:
        state.above_high.add(stride)


def keep(state: State) -> None:
    """One step's part of the way from above the high watermark to the low one."""
    for stride in state.groups:
        notice(state, stride)
    low_bytes = state.extents_ready * state.facts.extent_bytes // LOW_SHARE
    low_bytes = min(low_bytes, RESERVE_BYTES_MAX)
    left = GIVEN_UP_MAX
    for stride in sorted(state.above_high):
        while left > 0:
            missing_bytes = low_bytes - state.host.slab.room(stride) * stride
            given_up = _give_up(state, stride, left, missing_bytes) if missing_bytes > 0 else 0
            left -= given_up
            if not given_up:
                state.above_high.discard(stride)
                break


def reserve_bytes(state: State, stride: int) -> int:
    """What the low watermark leaves free for pages of a size. Nothing where the high one would
    leave not even one of them: a tier this small makes room when it must."""
    whole = state.extents_ready * state.facts.extent_bytes
    return min(whole // LOW_SHARE, RESERVE_BYTES_MAX) if stride <= whole // HIGH_SHARE else 0


def _give_up(state: State, stride: int, most: int, missing_bytes: int) -> int:
    """Blocks given up from the end of the chain that is coldest of its size, unless they still have
    to be written down: they are on their way, and there is room until that is done."""
    host = state.host
    tail = host.coldest_tail(state.groups[stride], min(most, -(-missing_bytes // stride)), LAST)
    if dirty := state.dirty:
        waits = [at for at, block in enumerate(tail, 1) if block in dirty]
        tail = tail[waits[-1] if waits else 0 :]
    if tail:
        host.evict(tail)
        state.counters.watermark_blocks += len(tail)
    return len(tail)
