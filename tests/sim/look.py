"""The one place that looks inside the engine: its figures, and its own books held against it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from onggi_core.engine.state import State
from onggi_core.engine.tier import Tier
from onggi_core.page import PageState

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
    for tier in (_state(engine).host, _state(engine).disk):
        for _, page in tier._owner.values():
            if page.state is not PageState.SEALED or page.pins:
                states[f"{tier.name.value} {page.state.name} pages"] += 1
        states[f"{tier.name.value} places used by nobody"] += _unowned(tier)
    return ", ".join(f"{count} {what}" for what, count in states.items() if count)


def digest(engine: Any) -> dict[str, Any]:
    """All that a request could have changed, but figures that only count what was asked."""
    state = _state(engine)
    seen = {name: value for name, value in engine.stats().items() if isinstance(value, int)}
    for counted in ("lookup_requests", "lookup_blocks"):
        seen.pop(counted)
    for tier in (state.host, state.disk):
        seen[tier.name.value] = [
            (place, page.state, page.pins, page.block.key)
            for place, (_, page) in tier._owner.items()
        ]
        seen[f"{tier.name.value} room"] = dict(tier.slab._used)
    seen["stores"] = [(s.ticket, s.lapsed, s.deadline_s) for s in state.stores.values()]
    seen["loads"] = [(x.ticket, len(x.rows), x.deadline_s) for x in state.loads.values()]
    return seen


def difference(before: Any, after: Any) -> str:
    return ", ".join(name for name in after if before.get(name) != after[name])


def inconsistencies(engine: Any) -> str:
    """Where the engine's books contradict each other; empty when they agree."""
    state = _state(engine)
    pins: Counter[int] = Counter()
    for load in state.loads.values():
        pins.update(id(page) for page in load.pinned)
    pins.update(id(block.host) for _, block in state.writes.values())
    pins.update(id(block.disk) for _, block in state.reads.values())
    for tier in (state.host, state.disk):
        used = 0
        for space, page in tier._owner.values():
            used += space.stride_bytes
            if page.pins != pins[id(page)]:
                return f"{tier.name.value} {page} has {pins[id(page)]} holders"
        if used != tier.used_bytes or len(tier._owner) != tier.pages:
            return f"{tier.name.value} counts {tier.used_bytes} bytes used and holds {used}"
    return ""


def _unowned(tier: Tier) -> int:
    """Places that are neither free nor some page's. Retired ones of a sick disk are no leak."""
    return sum(tier.slab._used.values()) - tier.pages if tier.name.value == "host" else 0
