"""The one place that looks inside the engine: its figures, and its own books held against it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.core import walker

from onggi_core.board.reader import BoardReader
from onggi_core.board.survey import Held, survey
from onggi_core.engine.state import Facts, State
from onggi_core.page import READABLE, PageState
from onggi_core.policy.choosers import LeastRecent
from onggi_core.region import QUARANTINED, ROOM
from onggi_core.wire.requests import SpaceSpec

ONLY_COUNTED = ("lookup_requests", "lookup_blocks")
"""Figures that say what was asked, refused or not."""


def _state(engine: Any) -> State:
    return engine._state


def board(engine: Any) -> BoardReader:
    """As a client sees it."""
    shown = _state(engine).board
    return BoardReader(shown.buffer.obj, shown.layout.slots)


def survey_of(engine: Any, facts: Facts) -> dict[int, list[Held]]:
    """What the next agent would find in the arena of this one."""
    board = _state(engine).board
    slots, size = board.layout.slots, facts.extent_bytes
    return survey(bytes(board.buffer), slots, extent_bytes=size, extents=facts.extents)


def stats(engine: Any) -> dict[str, Any]:
    return engine.stats()


def held_by(engine: Any, session: int) -> str:
    """Tickets that the engine keeps for a session; empty when it keeps none."""
    state = _state(engine)
    stores = sum(store.session == session for store in state.stores.values())
    loads = sum(load.session == session for load in state.loads.values())
    loads += sum(load.session == session for load in (*state.waiting_loads, *state.parked))
    waiting = {load for waiters in state.waiting.values() for load in waiters}
    loads += sum(load.session == session for load in waiting - state.leaving_loads.keys())
    return f"{stores} stores and {loads} loads" if stores or loads else ""


def leaving(engine: Any) -> set[tuple[bytes, bytes]]:
    """(fingerprint, key) of blocks whose stores are over and that have not been taken apart."""
    state = _state(engine)
    return {
        (store.space.spec.fingerprint, state.blocks.key(block))
        for store in state.leaving_stores.values()
        for block in store.blocks
    }


def there(engine: Any, space: SpaceSpec, key: bytes) -> str:
    """Whether a block may be read in the arena: "" it may, "dead" until nobody reads it, "gone"."""
    state = _state(engine)
    block = state.spaces[space.fingerprint].find(key)
    if block is None or state.host.pages.states[block] not in READABLE:
        return "gone"
    return "dead" if block in state.host.dead.blocks else ""


def held_pages(engine: Any) -> str:
    """Pages in other states than sealed or free; empty when there are none."""
    state = _state(engine)
    found: Counter[str] = Counter()
    for name, tier in (("host", state.host), ("disk", state.disk)):
        for page in tier.pages.states:
            if page not in (PageState.FREE, PageState.SEALED):
                found[f"{name} {PageState(page).name} pages"] += 1
        for number in tier.slab._regions:
            owners = list(tier.slab.owners_in(number))
            found[f"{name} QUARANTINED pages"] += owners.count(QUARANTINED)
            found[f"{name} pages of rooms"] += owners.count(ROOM)
    return ", ".join(f"{count} {what}" for what, count in found.items() if count)


def digest(engine: Any) -> dict[str, Any]:
    """All that a request could have changed, but figures that only count what was asked."""
    state = _state(engine)
    seen = {name: value for name, value in engine.stats().items() if isinstance(value, int)}
    for counted in ONLY_COUNTED:
        seen.pop(counted)
    for name, tier in (("host", state.host), ("disk", state.disk)):
        pages = tier.pages
        seen[name] = (bytes(pages.states), bytes(pages.pins), pages.places.tobytes())
        seen[f"{name} room"] = [tier.slab.used_in(number) for number in tier.slab._regions]
    seen["keys"] = [bytes(state.blocks.keys), state.blocks.space.tobytes()]
    seen["stores"] = [(s.ticket, s.deadline_s) for s in state.stores.values()]
    seen["loads"] = [(x.ticket, x.rows, x.deadline_s) for x in state.loads.values()]
    return seen


def difference(before: Any, after: Any) -> str:
    return ", ".join(name for name in after if before.get(name) != after[name])


def inconsistencies(engine: Any) -> str:
    """Where the engine's books contradict each other; empty when they agree."""
    try:
        walker.check(engine)
    except AssertionError as wrong:
        return str(wrong) or "the walker found something that it has no words for"
    return ""


def let_all_in(engine: Any) -> None:
    """From now on until the next prompt that the ghosts see, no policy turns a block away."""
    state = _state(engine)
    state.host.ranking.chooser = state.disk.ranking.chooser = LeastRecent()
