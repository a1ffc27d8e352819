"""Room kept ready in the host tier, so that a store finds it without making any.

Above the high watermark blocks are given up, a few a step, until the tier is down at the low one.
What is on disk already costs nothing to give up: a demotion is a write when the block is young and
an eviction when it is cold.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine.state import State
from onggi_core.engine.tier import SEALED
from onggi_core.policy.ranking import LAST

HIGH_SHARE: Final = 64
"""Fewer free pages than one part in so many is above the high watermark."""
LOW_SHARE: Final = 32
"""One part in so many free is the low one."""
RESERVE_BYTES_MAX: Final = 256 << 20
"""The most that is kept free: a few batches of the largest stores there are."""
GIVEN_UP_MAX: Final = 128
"""Blocks a step: some two hundred microseconds."""


def keep(state: State) -> None:
    """One step's part of the way from above the high watermark to the low one."""
    tier = state.host
    whole = state.extents_ready * state.facts.extent_bytes
    if whole // HIGH_SHARE < max(state.groups, default=0):
        return  # not even one page of the largest: a tier this small makes room when it must
    low = whole - min(whole // LOW_SHARE, RESERVE_BYTES_MAX)
    if tier.used_bytes > whole - min(whole // HIGH_SHARE, RESERVE_BYTES_MAX // 2):
        state.above_high = True
    left = GIVEN_UP_MAX
    while state.above_high and left > 0:
        above_bytes = tier.used_bytes - low
        given_up = _give_up(state, left, above_bytes) if above_bytes > 0 else 0
        state.above_high = given_up > 0
        left -= given_up


def _give_up(state: State, most: int, above_bytes: int) -> int:
    """Blocks given up from the end of the chain that is coldest of all, unless they still have to
    be written down: they are on their way, and there is room until that is done."""
    host = state.host
    found = [
        (host.ranking.last_use(block), group, stride)
        for stride, group in state.groups.items()
        if (block := host.coldest(group)) is not None
    ]
    if not found:
        return 0
    _, group, stride = min(found)
    tail = host.coldest_tail(group, min(most, -(-above_bytes // stride)), LAST)
    if state.has_disk:
        tail = tail[len(state.disk.pages.states_of(tail).rstrip(SEALED)) :]
    if tail:
        host.evict(tail)
        state.counters.watermark_blocks += len(tail)
    return len(tail)
