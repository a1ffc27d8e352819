"""Client to host tier: room reserved, filled by the client, sealed. Visible only when sealed."""

from __future__ import annotations

from onggi_core.engine import loads, writeback
from onggi_core.engine.session import Session, Store
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, State
from onggi_core.page import Page, PageEvent
from onggi_core.wire.replies import Mode, Slot, StoreCompleted, StorePrepared
from onggi_core.wire.requests import StoreOutcome, StorePrepare


def prepare(state: State, session: Session, asked: StorePrepare, now_s: float) -> StorePrepared:
    """Reserves a page for each block of the chain that the host tier lacks.

    A block on disk alone gets a page too: its bytes are at hand, and a copy from the engine is
    cheaper than the read that its next use would wait for. Where room ends the rest of the chain
    is NO_ROOM, since a child without its parent is worth nothing.
    """
    space = session.spaces[asked.space]
    if state.mode is not Mode.ACTIVE or state.stopping:
        return StorePrepared(0, (Slot.NO_ROOM,) * len(asked.keys))
    use = state.use()
    _make_room(state, space, asked, use)
    slots: list[int] = []
    pages: list[Page] = []
    parent = asked.parent
    for key in asked.keys:
        slot = _slot(state, space, key, parent, use, pages)
        if slot is Slot.NO_ROOM:
            break
        slots.append(slot)
        parent = key
    missing = len(asked.keys) - len(slots)
    state.counters.refused_blocks += missing
    slots += [Slot.NO_ROOM] * missing
    if not pages:
        return StorePrepared(0, tuple(slots))
    store = Store(state.serial(), session.number, space, pages, now_s + LEASE_S)
    state.stores[store.ticket] = store
    session.stores.add(store.ticket)
    return StorePrepared(store.ticket, tuple(slots))


def _make_room(state: State, space: Space, asked: StorePrepare, use: int) -> None:
    """Room for the whole chain at once. What the chain itself stands on is marked as used first,
    so that it is not what makes room."""
    ranking, missing = space.ranking(state.host.name), 0
    ranking.touch(asked.parent, use)
    for key in asked.keys:
        block = space.blocks.get(key)
        if block is None or block.host is None:
            missing += 1
        else:
            ranking.touch(key, use)
    state.host.make_room(space, missing, use)


def _slot(
    state: State, space: Space, key: bytes, parent: bytes, use: int, pages: list[Page]
) -> int:
    block = space.block(key, parent)
    if block.host is not None:
        if not block.host.readable:
            return Slot.BUSY
        space.ranking(state.host.name).touch(key, use)
        return Slot.EXISTS
    page = state.host.place(space, block, PageEvent.RESERVED, use)
    if page is None:
        space.forget_if_nowhere(block)
        return Slot.NO_ROOM
    pages.append(page)
    return state.arena_offset(page)


def complete(
    state: State, session: Session, store: Store, outcome: StoreOutcome, now_s: float
) -> StoreCompleted:
    """The client is done with the pages: they become visible, or are free again."""
    _close(state, session, store)
    if store.lapsed:
        for page in store.pages:
            state.host.end_quarantine(page)
        return StoreCompleted(0)
    if outcome is StoreOutcome.ABANDONED:
        _abandon(state, store, now_s)
        return StoreCompleted(0)
    for page in store.pages:
        state.host.seal(store.space, page, PageEvent.SEALED)
        if state.facts.segments and page.block.disk is None:
            state.dirty[page.block] = store.space
        loads.arrived(state, page, now_s)
    state.counters.stored_blocks += len(store.pages)
    state.counters.stored_bytes += len(store.pages) * store.space.spec.page_bytes
    writeback.pump(state)
    return StoreCompleted(len(store.pages))


def lapse(state: State, store: Store, now_s: float) -> None:
    """The lease ran out. The blocks are nobody's now; the pages wait until the client can no
    longer write to them: until it completes the ticket or its stream ends."""
    store.lapsed = True
    state.counters.fault("lease_ended")
    for page in store.pages:
        block = page.block
        state.host.quarantine(store.space, page)
        store.space.forget_if_nowhere(block)
        loads.failed(state, page, now_s)


def session_gone(state: State, session: Session, now_s: float) -> None:
    for ticket in tuple(session.stores):
        complete(state, session, state.stores[ticket], StoreOutcome.ABANDONED, now_s)


def _abandon(state: State, store: Store, now_s: float) -> None:
    for page in store.pages:
        block = page.block
        state.host.drop(store.space, page, PageEvent.ABANDONED)
        store.space.forget_if_nowhere(block)
        loads.failed(state, page, now_s)


def _close(state: State, session: Session, store: Store) -> None:
    del state.stores[store.ticket]
    session.stores.discard(store.ticket)
