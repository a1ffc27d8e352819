"""Live budgets: how much of the arena and of the disk the tiers may use, changed while they serve.

Growing touches first and offers later. Shrinking withdraws whole regions, the emptiest first: they
hand out no more pages, what they hold is written down and given up a part a step, and once a region
is empty its memory or file is let go of. What is pinned, being filled or in quarantine is waited
for, so a shrink ends by itself when the last reader does.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine import inheriting
from onggi_core.engine.actions import ReleaseExtent, ReleaseSegment, TouchExtent
from onggi_core.engine.events import BudgetSet, ExtentTouched
from onggi_core.engine.regions import Regions
from onggi_core.engine.state import State
from onggi_core.engine.tier import Tier
from onggi_core.errors import BadRequest
from onggi_core.page import PageState
from onggi_core.region import BLOCKS_MAX

GIVEN_UP_MAX: Final = 256
"""Blocks given up in one step for a shrinking budget: about a millisecond."""
LOOKED_AT_MAX: Final = 2048
"""Pages looked at for that: some may wait for a reader or the writer."""
TOUCH_AGAIN_S: Final = 10.0
"""After an extent was refused, how long before one is asked for again."""


def set_budget(state: State, event: BudgetSet, now_s: float) -> None:
    """Raises BadRequest, with nothing changed, for more than this life has room for."""
    for name, wanted, most in (
        ("extents", event.extents, state.facts.extents),
        ("segments", event.segments, state.facts.segments),
    ):
        if not 0 <= wanted <= most:
            raise BadRequest(name, wanted, f"use 0 to {most}")
    state.extents.budget = event.extents
    state.segments.budget = event.segments
    if not state.extents.told:
        # What the shell touches unasked at its start is the first budget, not all there is room for
        state.extents.told = True
        missing = max(0, event.extents - len(state.extents.ready))
        state.extents.coming = set(sorted(state.extents.coming)[:missing])
    work(state, now_s)


def work(state: State, now_s: float) -> None:
    """One step's part of what lies between the tiers and their budgets. Nothing when they agree."""
    state.shrinking = False
    if not state.extents.settled:
        _shrink(state.extents, state.host)
        _restore(state, state.extents, state.host)
        _grow_host(state, now_s)
        for number in _emptied(state, state.extents, state.host):
            state.actions.append(ReleaseExtent(number))
    if not state.segments.settled:
        _shrink(state.segments, state.disk)
        _restore(state, state.segments, state.disk)
        _grow_disk(state)
        for number in _emptied(state, state.segments, state.disk):
            state.resting_segments.pop(number, None)
            state.actions.append(ReleaseSegment(number))


def touched(state: State, event: ExtentTouched) -> None:
    """An extent is the agent's now. Raises BadRequest for one that already was."""
    extents, number = state.extents, event.number
    if number in extents.ready or number in extents.leaving:
        raise BadRequest("extent", number, "each is touched once until it is released")
    extents.coming.discard(number)
    if len(extents.ready) >= extents.budget:
        state.actions.append(ReleaseExtent(number))
        return
    state.host.slab.add_region(number)
    extents.ready.add(number)
    if event.held:
        inheriting.inherit(state, event.held)


def refused(state: State, number: int, now_s: float) -> None:
    """There is no memory for an extent now: asked for again later, one at a time."""
    state.extents.coming.discard(number)
    state.extents.again_s = now_s + TOUCH_AGAIN_S
    state.counters.refused_extents += 1


def _shrink(regions: Regions, tier: Tier) -> None:
    while len(regions.ready) > regions.budget:
        number = min(regions.ready, key=lambda one: (tier.slab.used_in(one), -one))
        regions.ready.remove(number)
        regions.leaving[number] = 0
        tier.slab.withdraw(number)


def _restore(state: State, regions: Regions, tier: Tier) -> None:
    """A budget that grew again takes back what has not left yet."""
    while regions.leaving and len(regions.ready) + len(regions.coming) < regions.budget:
        number, _ = regions.leaving.popitem()
        regions.ready.add(number)
        if regions is state.segments:
            state.resting_segments.pop(number, None)
        tier.slab.restore(number)


def _grow_host(state: State, now_s: float) -> None:
    extents = state.extents
    missing = extents.budget - len(extents.ready) - len(extents.coming)
    if missing <= 0 or now_s < extents.again_s:
        return
    if extents.again_s:  # one was refused: try one, and the rest when it came
        missing = 0 if extents.coming else 1
    for number in range(extents.most):
        if missing <= 0:
            return
        if not extents.knows(number):
            extents.coming.add(number)
            state.actions.append(TouchExtent(number))
            missing -= 1


def _grow_disk(state: State) -> None:
    segments = state.segments
    for number in range(segments.most):
        if len(segments.ready) >= segments.budget:
            return
        if not segments.knows(number):
            segments.ready.add(number)
            state.disk.slab.add_region(number)


def _emptied(state: State, regions: Regions, tier: Tier) -> list[int]:
    """Gives up a part of what leaving regions hold; answers with those that are empty now."""
    left, looks = GIVEN_UP_MAX, LOOKED_AT_MAX
    for number, begin in tuple(regions.leaving.items()):
        if left <= 0 or looks <= 0:
            break
        owners = tier.slab.owners_in(number, begin, looks)
        looks -= len(owners)
        seen = 0
        for owner in owners:
            seen += 1
            if 0 <= owner < BLOCKS_MAX and _give_up(state, tier, owner):
                left -= 1
                if not left:
                    break
        at_end = begin + seen >= tier.slab.pages_in(number)
        regions.leaving[number] = 0 if at_end else begin + seen
    state.shrinking = state.shrinking or left <= 0
    gone = [number for number in regions.leaving if not tier.slab.used_in(number)]
    for number in gone:
        del regions.leaving[number]
        tier.slab.remove_region(number)
    return gone


def _give_up(state: State, tier: Tier, block: int) -> bool:
    """Whether a block left the tier; one that still has to be written down goes first in that."""
    if tier.pages.states[block] != PageState.SEALED:
        return False
    if tier is state.host and block in state.dirty:
        state.dirty.move_to_end(block, last=False)
        return False
    tier.evict(range(block, block + 1))
    return True
