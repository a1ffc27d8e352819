"""Room ahead: pages that a client in the middle of storing gets before it says for which blocks.

A store that waits for its pages waits for two wake-ups, which takes as long as copying some
mebibytes. So a client that stores in a stream is granted the pages of its next store in the answer
to this one. They are its own like those of a store, under a lease, and they push out what its next
store would: the coldest. What they may take up is bounded, since a stream ends without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi_core.engine import admission
from onggi_core.engine.session import TICKETS_MAX, Room, Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, State
from onggi_core.engine.tier import Row
from onggi_core.wire.replies import Mode

EXTENTS_SHARE: Final = 2
"""Rooms lie in one extent of so many at most. One with a page of a room cannot go to another page
size, and a client that says nothing may keep its room for as long as it lives."""


def grant(
    state: State, session: Session, space: Space, wanted: int, use: int, now_s: float
) -> tuple[int, tuple[int, ...]]:
    """A room of up to `wanted` pages: its ticket and where in the arena file its pages begin; (0,
    ()) for none. use: nothing that was last used then or later makes way for it."""
    pages = _pages_allowed(state, session, space, wanted)
    if not pages or not admission.room_ahead(state, space, use):
        return 0, ()
    if state.extents_ready < EXTENTS_SHARE:
        return 0, ()  # before anything makes way for it
    state.host.make_room(space, pages, use)
    rows = state.host.take_room(space, pages)
    if not rows:
        return 0, ()
    room = Room(state.serial(), session.number, space, rows, now_s + LEASE_S)
    _count(state, session, room, 1)
    if len(state.room_extents) > state.extents_ready // EXTENTS_SHARE:
        _count(state, session, room, -1)
        _free(state, rows)
        return 0, ()
    state.stores[room.ticket] = room
    session.stores.add(room.ticket)
    base = state.facts.data_offset
    return room.ticket, tuple([place + base for place in room.places()])


def end(state: State, session: Session, room: Room, left: Sequence[Row]) -> None:
    """The client touches the room no more. left: its pages that no block took."""
    del state.stores[room.ticket]
    session.stores.discard(room.ticket)
    _count(state, session, room, -1)
    _free(state, left if room.quarantined is None else room.rows)


def lapse(state: State, room: Room) -> None:
    """Its lease ran out: it rests, as a store's pages do, until the client ends it. Its rows are
    few, however many pages they have: a step may take all of them."""
    for place, count in room.rows:
        state.host.quarantine_room(place, count)
    room.quarantined = room.places()


def _pages_allowed(state: State, session: Session, space: Space, wanted: int) -> int:
    """One room is at most half of what its client may have, so that it fills one while the next is
    on its way."""
    if state.mode is not Mode.ACTIVE or state.stopping or session.tickets >= TICKETS_MAX:
        return 0
    bounds, stride = state.facts.rooms, space.stride_bytes
    whole = state.extents_ready * state.facts.extent_bytes
    most = min(bounds.session_bytes, whole // bounds.share)
    free = min(most - session.room_bytes, whole // bounds.share - state.room_bytes)
    pages = max(0, min(wanted, min(most // 2, free) // stride))
    return pages if pages >= min(wanted, bounds.worth_bytes // stride) else 0


def _free(state: State, rows: Sequence[Row]) -> None:
    for place, count in rows:
        state.host.slab.give_back(place, count)


def _count(state: State, session: Session, room: Room, sign: int) -> None:
    session.room_bytes += sign * room.nbytes
    state.room_bytes += sign * room.nbytes
    extents = state.room_extents
    for place, count in room.rows:
        extent = place // state.facts.extent_bytes
        extents[extent] = extents.get(extent, 0) + sign * count
        if not extents[extent]:
            del extents[extent]
