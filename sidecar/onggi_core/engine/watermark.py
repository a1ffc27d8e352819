"""Room kept ready in the host tier, so that a store finds it without making any.

Above the high watermark blocks are given up, a few a step, until the tier is down at the low one.
What is on disk already costs nothing to give up: a demotion is a write when the block is young and
an eviction when it is cold.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine.state import State
from onggi_core.page import PageState

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
    for _ in range(GIVEN_UP_MAX):
        if not state.above_high:
            return
        if tier.used_bytes <= low or not _give_up_one(state):
            state.above_high = False


def _give_up_one(state: State) -> bool:
    """The coldest leaf of all, unless it still has to be written down: that is on its way, and
    there is room until it is done."""
    found = [state.host.coldest(group) for group in state.groups.values()]
    block = min(
        (one for one in found if one is not None), key=state.host.ranking.last_use, default=None
    )
    if block is None or (state.has_disk and state.disk.pages.states[block] != PageState.SEALED):
        return False
    state.host.evict(block)
    state.counters.watermark_blocks += 1
    return True
