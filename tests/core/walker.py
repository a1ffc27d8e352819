"""Walks over the whole state of an engine and asserts what must hold between any two steps.

Not part of the product: it reads what is private, and takes as long as there are blocks.
"""

from __future__ import annotations

from collections import Counter

from onggi_core.board.beginnings import place
from onggi_core.board.reader import BoardReader
from onggi_core.engine.engine import Engine
from onggi_core.engine.session import Room
from onggi_core.engine.state import State
from onggi_core.engine.tier import Tier
from onggi_core.identity import ROOT
from onggi_core.index.ids import NOWHERE
from onggi_core.index.keytable import NO_SPACE
from onggi_core.page import ARRIVING, READABLE, PageState
from onggi_core.region import BLOCKS_MAX, FREE, QUARANTINED, RETIRED, ROOM


def check(engine: Engine) -> None:
    """Raises AssertionError, naming the block or region, if anything does not agree."""
    state = engine._state
    _check_names(state)
    for tier in (state.host, state.disk):
        _check_pages(state, tier)
        _check_regions(tier)
        _check_ranking(state, tier)
        _check_dead(tier)
    _check_pins(state)
    _check_waits(state)
    _check_budgets(state)
    _check_board(state)
    _check_beginnings(state)


def _check_names(state: State) -> None:
    index = state.blocks
    known: dict[int, object] = {}
    for space in state.space_rows:
        if space is not None:
            assert index.tables[space.number] is space.table
            mine = [block for block, number in enumerate(index.space) if number == space.number]
            assert len(mine) == len(space.table)
            known |= dict.fromkeys(mine, space)
            for block in mine:
                key = index.key(block)
                assert space.find(key) == block, f"{block} is not found by its key"
                assert key != ROOT or index.parent[block] == NOWHERE
    assert len(known) == len(index)
    assert not set(index._free) & set(known), "a free number is in use"
    kids = Counter(index.parent[block] for block in known)
    for block in known:
        assert index.kids[block] == kids[block], f"kids of {block}"
        above = index.parent[block]
        assert above == NOWHERE or index.space[above] == index.space[block]
        nowhere = not (index.host.states[block] or index.disk.states[block])
        assert not nowhere or (kids[block] and above == NOWHERE), f"{block} is held for nothing"
    for block in set(range(index._used)) - set(known):
        assert not index.host.states[block]
        assert not index.disk.states[block]
        assert index.parent[block] == NOWHERE


def _check_pages(state: State, tier: Tier) -> None:
    pages, used_bytes, count = tier.pages, 0, 0
    for block, page in enumerate(pages.states):
        if page == PageState.FREE:
            assert not pages.pins[block], f"{block} is pinned nowhere"
            continue
        assert page in READABLE | ARRIVING, f"{block} is {PageState(page)!r}"
        assert (page == PageState.READING) == (pages.pins_of(block) > 0), f"pins of {block}"
        assert tier.slab.owner(pages.place(block)) == block, f"{block}'s page has another owner"
        space = state.space_rows[state.blocks.space[block]]
        assert space is not None
        used_bytes += space.stride_bytes
        count += 1
    assert (tier.used_bytes, tier.used_pages) == (used_bytes, count)


def _check_regions(tier: Tier) -> None:
    slab, owned = tier.slab, 0
    free: Counter[int] = Counter()
    for number, region in slab._regions.items():
        owners = list(slab.owners_in(number))
        assert region.free == owners.count(FREE), f"free pages of region {number}"
        assert region.retired == owners.count(RETIRED)
        if number not in slab._withdrawn:
            free[region.stride] += region.free
            assert not region.free or number in slab._with_room[region.stride]
            empty = not region.used and not region.retired
            assert (number in slab._empty) == empty
        owned += sum(0 <= owner < BLOCKS_MAX for owner in owners)
    assert +free == +Counter(slab._free)
    assert owned == tier.used_pages, "a page without its block"
    assert not set(slab.spare) & slab._withdrawn


def _check_ranking(state: State, tier: Tier) -> None:
    ranking, states = tier.ranking, tier.pages.states
    here = [block for block, page in enumerate(states) if page != PageState.FREE]
    assert len(ranking) == len(here)
    for block in here:
        assert block in ranking, f"{block} is not ranked"
    for block in tier._held:
        assert states[block] not in (PageState.FREE, PageState.SEALED), f"{block} held for nothing"


def _check_dead(tier: Tier) -> None:
    dead, states = tier.dead, tier.pages.states
    assert all(states[block] != PageState.FREE for block in dead.blocks), "dead without a page"
    assert dead.going.keys() <= dead.blocks
    may_go = {block for block in dead.blocks if states[block] == PageState.SEALED}
    assert may_go <= dead.going.keys(), "dead, sealed, and never to go"


def _check_pins(state: State) -> None:
    host: Counter[int] = Counter()
    for load in (*state.loads.values(), *state.leaving_loads):
        for run in load.runs:
            assert len(run) == load.rows or load in state.parked
            host.update(block for block in run if block not in load.unready)
    for write in state.writes.values():
        host.update(write.blocks)
    disk = Counter(block for read in state.reads.values() for block in read.blocks)
    for tier, wanted in ((state.host, host), (state.disk, disk)):
        pages = tier.pages
        pinned = {b: pages.pins_of(b) for b in range(len(pages.pins)) if pages.pins[b]}
        assert pinned == dict(wanted)
    assert state.writing_bytes == sum(
        write.space.stride_bytes * len(write.blocks) for write in state.writes.values()
    )


def _check_waits(state: State) -> None:
    host, disk = state.host.pages.states, state.disk.pages.states
    for block in state.dirty:
        assert host[block] in READABLE, f"dirty {block} is not in the host tier"
        assert disk[block] == PageState.FREE, f"dirty {block} is on disk"
    for block, loads in state.waiting.items():
        assert host[block] in ARRIVING, f"{block} is waited for and does not come"
        assert loads
        assert all(block in load.unready for load in loads)
    for load in state.loads.values():
        assert all(load in state.waiting[block] for block in load.unready)
        assert (load in state.waiting_loads) == bool(load.unready or load in state.parked)
    _check_rooms(state)
    stores = {**state.stores, **state.leaving_stores}.values()
    resting = [place for store in stores for place in store.quarantined or ()]
    assert all(state.host.slab.owner(place) == QUARANTINED for place in resting)


def _check_rooms(state: State) -> None:
    rooms = [store for store in state.stores.values() if isinstance(store, Room)]
    assert state.room_bytes == sum(room.nbytes for room in rooms)
    extents = Counter(p // state.facts.extent_bytes for room in rooms for p in room.places())
    assert state.room_extents == dict(extents)
    for session in state.sessions.values():
        own = sum(room.nbytes for room in rooms if room.session == session.number)
        assert session.room_bytes == own
    places = sorted(p for room in rooms if room.quarantined is None for p in room.places())
    slab = state.host.slab
    marked = [
        number * slab.region_bytes + index * region.stride
        for number, region in slab._regions.items()
        for index, owner in enumerate(slab.owners_in(number))
        if owner == ROOM
    ]
    assert places == sorted(marked), "a page of no room, or of two"


def _check_budgets(state: State) -> None:
    for regions, tier, region_bytes in (
        (state.extents, state.host, state.facts.extent_bytes),
        (state.segments, state.disk, state.facts.segment_bytes),
    ):
        here = regions.ready | set(regions.leaving)
        assert len(here) == len(regions.ready) + len(regions.leaving)
        assert not here & regions.coming
        assert len(regions.ready) <= regions.budget <= regions.most
        assert tier.used_bytes <= len(here) * region_bytes
        assert set(regions.leaving) <= tier.slab._withdrawn
        assert set(tier.slab._regions) | set(tier.slab.spare) <= here


def _check_board(state: State) -> None:
    """Shown is what is sealed, where it lies, and nothing else."""
    board, pages, index = state.board, state.host.pages, state.blocks
    reader = BoardReader(bytes(board.buffer), board.layout.slots)
    shown = [block for block in range(len(pages.states)) if board.shows(block)]
    assert board.shown_blocks == len(shown)
    for block in shown:
        assert pages.states[block] in READABLE, f"{block} is shown and {pages.state(block)!r}"
        space = state.space_rows[index.space[block]]
        assert space is not None
        slot = board.slot_of(block)
        assert reader.shows(slot, space.tag, index.key(block), pages.places[block])
    sealed = {block for block, page in enumerate(pages.states) if page in READABLE}
    hidden = sealed - set(shown) - state.host.dead.blocks
    assert not hidden or board.unshown_blocks, "sealed and not shown"


def _check_beginnings(state: State) -> None:
    """What readers see is what is counted, and only known blocks are."""
    index = state.blocks
    told = [block for block, one in enumerate(index.beginnings._told) if one]
    counts = index.beginnings._counts
    seen = Counter(place(index.key(block), len(counts)) for block in told)
    assert all(index.space[block] != NO_SPACE for block in told), "a block that went begins chains"
    assert {at: count for at, count in enumerate(counts) if count} == seen
    for block in set(range(index._used)) - set(index._free) - set(told):
        held = index.host.states[block] or index.disk.states[block]
        assert not held or index.parent[block] != NOWHERE, f"{block} is held and denied"
