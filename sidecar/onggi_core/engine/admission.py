"""What a full tier takes in: the policy that is ahead may turn new blocks away.

One tier is guarded, the larger one (State.disk_decides): the ghosts stand for it, and what they
promise holds for it alone. The smaller one is where blocks arrive or wait for their next use, and
takes what comes. With a disk tier larger than the arena a store is never turned away: its blocks
are not written down, and are offered to the disk again when they are asked for again. Without one
a store is answered NO_ROOM from the first block on that is not worth what would go for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Final

from onggi_core.engine import watermark
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.index.ids import NOWHERE
from onggi_core.page import PageState

SEEN_MAX: Final = 4096
"""Keys of a store turned away that are remembered, from its start: two milliseconds of a step."""

ROOM_BYTES: Final = 8 << 20
ROOM_SHARE: Final = 256
"""A full disk tier gives up so much at a time, or one part in so many of itself if that is less:
room for each run by itself costs the engine more than all the rest of writing it. Where the policy
guards it a run gets room for itself alone: more would be open to what it refuses."""


def room_in_host(
    state: State, space: Space, keys: Sequence[bytes], use: int, *, orphan: bool
) -> int:
    """Makes room in the host tier; for how many of `keys`, from the first on, the policy lets in.
    What the watermark keeps ready is room for what is worth it, not for all that comes. orphan:
    what they follow is in no tier, so they are worth nothing."""
    wanted = len(keys)
    if state.taking_over:
        return min(wanted, state.host.slab.room(space.stride_bytes))
    if state.disk_decides:
        state.host.make_room(space, wanted, use)
        return wanted
    room = max(0, _spare(state, space))
    if room >= wanted or orphan:
        return min(room, wanted)
    if _let_in(state, space, wanted, use, 0):
        return wanted  # if any may come in, so may those asked for before, and nobody has to look
    room = max(room, _spare(state, space))
    count_of = partial(state.sights.count, space=space.number)
    for count, alike in groupby(map(count_of, keys[room:])):
        until = room + len(list(alike))
        if not _let_in(state, space, until, use, count):
            return min(max(room, _spare(state, space)), wanted)
        room = until
    return room


def room_ahead(state: State, space: Space, use: int) -> bool:
    """Whether pages may be granted before anybody knows for which blocks."""
    if state.taking_over:
        return False
    if state.disk_decides or _spare(state, space) > 0:
        return True
    leaf = state.host.coldest(space.group, use)
    return leaf is None or state.host.admits(0, leaf)


def _spare(state: State, space: Space) -> int:
    """Free pages that are there for all that comes."""
    stride = space.stride_bytes
    return state.host.slab.room(stride) - watermark.reserve_bytes(state, stride) // stride


def _let_in(state: State, space: Space, pages: int, use: int, count: int) -> bool:
    """Whether blocks asked for `count` times are worth what goes for them, which is given up where
    there is no room at all; where there is some, the watermark sees to it after the store."""
    leaf = state.host.coldest(space.group, use)
    if leaf is not None and not state.host.admits(count, leaf):
        return False
    return state.host.make_room(space, pages, use, newcomer=count)


def turned_away(state: State, space: Space, keys: Sequence[bytes]) -> None:
    """Blocks of a store that did not come in: the next time they were asked for before."""
    state.counters.unadmitted_host_blocks += len(keys)
    for key in keys[:SEEN_MAX]:
        state.sights.see(key, space.number)


def room_on_disk(state: State, space: Space, run: Sequence[int], use: int) -> bool:
    """Makes room on disk for a run of blocks that were asked for equally often; False where the
    policy does not let all of them in. What they follow is marked as used first, so that it is not
    what makes room for them."""
    disk = state.disk
    above = state.blocks.parent[run[0]]
    if above != NOWHERE and disk.pages.states[above]:
        disk.ranking.touch(above, use)
    fits = disk.slab.room(space.stride_bytes) >= len(run)
    if not state.disk_decides:
        whole = len(state.segments.ready) * state.facts.segment_bytes
        ahead = min(ROOM_BYTES, whole // ROOM_SHARE) // space.stride_bytes
        return fits or disk.make_room(space, max(len(run), ahead), use)
    if not _reachable(state, run[0], fits=fits):
        return False
    return disk.make_room(space, len(run), use, newcomer=state.host.ranking.count_of(run[0]))


def offer_again(state: State, run: Sequence[int]) -> None:
    """A prompt asked for blocks that the host tier holds: those that the disk tier turned away, or
    gave up since, are worth more now. Each was asked for as often as the last, whose count alone
    a hit moves."""
    if not state.disk_decides:
        return
    on_disk = state.disk.pages.states_of(run)
    at = on_disk.find(PageState.FREE)
    ranking = state.host.ranking
    while at >= 0:
        if run[at] not in state.host.dead.blocks:
            state.dirty.setdefault(run[at])
        ranking.recall(run[at], ranking.count_of(run[-1]))
        at = on_disk.find(PageState.FREE, at + 1)


def _reachable(state: State, block: int, *, fits: bool) -> bool:
    """Whether what a block follows is on disk or on its way there: else nobody finds it there. What
    is in no tier may come yet, and is waited for as long as there is room."""
    above = state.blocks.parent[block]
    if above == NOWHERE or state.disk.pages.states[above] or above in state.dirty:
        return True
    return fits and not state.host.pages.states[above]
