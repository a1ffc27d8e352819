"""What clients let go of, taken apart a part a step.

A session that ends, a lease that runs out, a store that is given up and blocks that are discarded
may be about more pages than one step may touch: whoever asks next would wait for all of them. So
they are set aside at once, when nobody can reach them any more, and their pages follow from event
to event.
"""

from __future__ import annotations

from typing import Final

from onggi_core.engine import loads
from onggi_core.engine.session import Load, Session, Store
from onggi_core.engine.state import State
from onggi_core.page import PageEvent

PART: Final = 64
"""Pages of stores that one step takes apart: about a millisecond."""
PINS_A_PAGE: Final = 16
"""Pins that are given back in the time of one page of a store."""


def store_over(state: State, store: Store) -> None:
    """The client writes to none of its pages any more, and what it wrote is worth nothing."""
    store.over = True
    state.leaving_stores[store.ticket] = store


def store_lapsed(state: State, store: Store) -> None:
    """The lease ran out. The blocks are nobody's from now on; the pages wait until the client can
    no longer write to them: until it completes the ticket or its stream ends."""
    store.quarantined = []
    state.leaving_stores[store.ticket] = store


def load_over(state: State, session: Session, load: Load) -> None:
    """Nobody waits for it or reads its pages any more."""
    loads.forget(state, session, load)
    state.leaving_loads[load] = None


def work(state: State, now_s: float) -> None:
    """One step's part. Loads go first: they may wait for blocks of the stores."""
    left = PART
    while state.leaving_loads and left > 0:
        load = next(iter(state.leaving_loads))
        left -= _unpin(state, load, left)
        if not load.rows:
            del state.leaving_loads[load]
    while state.leaving_stores and left > 0:
        store = next(iter(state.leaving_stores.values()))
        left -= _drop(state, store, left, now_s)
        if store.over and not store.blocks and left > 0:
            left -= _end_quarantine(state, store, left)
        if not store.blocks and not (store.over and store.quarantined):
            del state.leaving_stores[store.ticket]
    for tier in (state.host, state.disk):
        left -= tier.bury(max(0, left))


def _unpin(state: State, load: Load, most: int) -> int:
    """Gives back the pins of the last rows; answers what that is in pages, at least one."""
    rows = max(1, most * PINS_A_PAGE // len(load.runs))
    before = load.rows
    loads.cut(state, load, max(0, before - rows))
    return 1 + (before - load.rows) * len(load.runs) // PINS_A_PAGE


def _drop(state: State, store: Store, most: int, now_s: float) -> int:
    """The last blocks of a store lose their pages; how many."""
    kept = max(0, len(store.blocks) - most)
    tail, store.blocks = store.blocks[kept:], store.blocks[:kept]
    for block in reversed(tail):
        loads.failed(state, block, now_s)
        if store.over:
            state.host.drop(store.space, block, PageEvent.ABANDONED)
        else:
            assert store.quarantined is not None, "a store is taken apart for one of two reasons"
            store.quarantined.append(state.host.quarantine(store.space, block))
        state.blocks.forget_if_nowhere(block)
    return len(tail)


def _end_quarantine(state: State, store: Store, most: int) -> int:
    places = (store.quarantined or [])[-most:]
    for place in places:
        state.host.end_quarantine(place)
    if places:
        del store.quarantined[-most:]  # type: ignore[union-attr]  # there are some
    return len(places)
