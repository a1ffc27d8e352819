"""The one place that looks inside the engine: its figures, and its own books held against it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from onggi_core.engine.state import State
from onggi_core.engine.tier import Tier
from onggi_core.page import PageState
from onggi_core.region import QUARANTINED

COUNTED = ("counters",)


def _state(engine: Any) -> State:
    return engine._state


def stats(engine: Any) -> dict[str, Any]:
    return engine.stats()


def held_by(engine: Any, session: int) -> str:
    """Tickets that the engine keeps for a session; empty when it keeps none."""
    state = _state(engine)
    stores = sum(store.session == session for store in state.stores.values())
    loads = sum(load.session == session for load in state.loads.values())
    loads += sum(load.session == session for load in state.waiting_loads)
    loads += sum(load.session == session for waiters in state.waiting.values() for load in waiters)
    return f"{stores} stores and {loads} loads" if stores or loads else ""


def held_pages(engine: Any) -> str:
    """Pages that are in other states than sealed or free; empty when there are none."""
    states: Counter[str] = Counter()
    for name, tier in _tiers(engine):
        for block, page in enumerate(tier.pages.states):
            if page not in (PageState.FREE, PageState.SEALED) or tier.pages.pins[block]:
                states[f"{name} {PageState(page).name} pages"] += 1
        states[f"{name} places used by nobody"] += _owners(tier)[QUARANTINED]
    return ", ".join(f"{count} {what}" for what, count in states.items() if count)


def digest(engine: Any) -> dict[str, Any]:
    """All that a request could have changed, but figures that only count what was asked."""
    state = _state(engine)
    seen = {name: value for name, value in engine.stats().items() if isinstance(value, int)}
    for counted in ("lookup_requests", "lookup_blocks"):
        seen.pop(counted)
    for name, tier in _tiers(engine):
        seen[name] = [
            (place, tier.pages.states[block], tier.pages.pins_of(block), state.blocks.keys[block])
            for block, place in _pages(tier)
        ]
        seen[f"{name} room"] = dict(_owners(tier))
    seen["stores"] = [(s.ticket, s.quarantined, s.deadline_s) for s in state.stores.values()]
    seen["loads"] = [(x.ticket, x.rows, x.deadline_s) for x in state.loads.values()]
    return seen


def difference(before: Any, after: Any) -> str:
    return ", ".join(name for name in after if before.get(name) != after[name])


def inconsistencies(engine: Any) -> str:
    """Where the engine's books contradict each other; empty when they agree."""
    state = _state(engine)
    pins = {"host": Counter[int](), "disk": Counter[int]()}
    for load in state.loads.values():
        for run in load.runs:
            pins["host"].update(block for block in run if block not in load.unready)
    for write in state.writes.values():
        pins["host"].update(write.blocks)
    for read in state.reads.values():
        pins["disk"].update(read.blocks)
    for name, tier in _tiers(engine):
        used = 0
        for block, place in _pages(tier):
            space = state.space_rows[state.blocks.space[block]]
            used += space.stride_bytes if space is not None else 0
            if tier.pages.pins_of(block) != pins[name][block]:
                return f"{name} block {block} has {pins[name][block]} holders"
            if tier.slab.owner(place) != block:
                return f"{name} block {block} lies on a page of {tier.slab.owner(place)}"
        if used != tier.used_bytes or len(_pages(tier)) != tier.used_pages:
            return f"{name} counts {tier.used_bytes} bytes used and holds {used}"
    return ""


def _tiers(engine: Any) -> tuple[tuple[str, Tier], tuple[str, Tier]]:
    return ("host", _state(engine).host), ("disk", _state(engine).disk)


def _pages(tier: Tier) -> list[tuple[int, int]]:
    """Blocks with a page in a tier, and where it is."""
    states = tier.pages.states
    return [(block, tier.pages.place(block)) for block, page in enumerate(states) if page]


def _owners(tier: Tier) -> Counter[int]:
    """Pages in regions by who has them."""
    slab = tier.slab
    return Counter(owner for number in slab._regions for owner in slab.owners_in(number))
