"""Client to host tier: room reserved, filled by the client, sealed. Visible only when sealed."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.engine import (
    admission,
    discarding,
    leaving,
    loads,
    rooms,
    watermark,
    writeback,
)
from onggi_core.engine.session import Room, Session, Store
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, State
from onggi_core.errors import BadRequest
from onggi_core.identity import ROOT
from onggi_core.index.ids import as_run
from onggi_core.page import READABLE, PageEvent, PageState
from onggi_core.wire.replies import Mode, Slot, StoreCompleted, StoreFilled, StorePrepared
from onggi_core.wire.requests import StoreFill, StoreOutcome, StorePrepare


def prepare(state: State, session: Session, asked: StorePrepare, now_s: float) -> StorePrepared:
    """Reserves a page for each block of the chain that the host tier lacks.

    A block on disk alone gets a page too: its bytes are at hand, and a copy from the engine is
    cheaper than the read that its next use would wait for. Where room ends the rest of the chain
    is NO_ROOM, since a child without its parent is worth nothing.
    """
    space = session.spaces[asked.space]
    if state.mode is not Mode.ACTIVE or state.stopping:
        return StorePrepared(0, (Slot.NO_ROOM,) * len(asked.keys))
    slots, blocks, admitted = _reserve(state, space, asked.keys, asked.parent)
    missing = len(asked.keys) - len(slots)
    if admitted:
        state.counters.refused_blocks += missing
    else:
        admission.turned_away(state, space, asked.keys[len(slots) :])
    slots += [Slot.NO_ROOM] * missing
    if not blocks:
        return StorePrepared(0, tuple(slots))
    store = Store(state.serial(), session.number, space, blocks, now_s + LEASE_S)
    state.stores[store.ticket] = store
    session.stores.add(store.ticket)
    return StorePrepared(store.ticket, tuple(slots))


def _reserve(
    state: State, space: Space, keys: Sequence[bytes], parent: bytes
) -> tuple[list[int], Sequence[int], bool]:
    """Slots of the leading keys that need no page or got one, the blocks that got one, and whether
    the policy would have let all of them in.

    What is here of the chain, and what that stands on, is marked as used first, so that it is not
    what makes room.
    """
    discarding.keep_again(state, space, keys)
    use, known = state.use(), space.known(keys)
    if known and parent == ROOT:  # it may have come as another's follower, by a client's mistake
        state.blocks.beginnings.add(known[0], state.blocks.keys)
    states, touch = state.host.pages.states, state.host.ranking.touch
    base = space.find(parent)
    if base is not None and states[base]:
        touch(base, use)
    lead = 0
    for block in known:
        if not states[block]:
            break
        lead += 1
    if lead:
        state.host.ranking.touch_run(known[:lead], use)
        parent = keys[lead - 1]
    slots = [_held(states[block]) for block in known[:lead]]
    rest = keys[lead:]
    if not rest:
        return slots, (), True
    orphan = not lead and parent != ROOT and (base is None or not _anywhere(state, base))
    new: Sequence[bytes] = rest
    if lead < len(known):
        found = list(map(space.find, rest))
        for here in found:
            if here is not None and states[here]:
                touch(here, use)
        pairs = zip(rest, found, strict=True)
        new = [key for key, here in pairs if here is None or not states[here]]
    count = admission.room_in_host(state, space, new, use, orphan=orphan) if new else 0
    admitted = count == len(new)
    if not admitted:
        rest = rest[: rest.index(new[count])]
    if not rest:
        return slots, (), admitted
    if lead == len(known):
        chain = state.blocks.new_chain(space.number, rest, parent)
        if chain is not None:
            blocks = _take(state, space, chain, use)
            slots += state.host.pages.offsets(blocks, state.facts.data_offset)
            return slots, blocks, admitted
    return *_reserve_each(state, space, rest, parent, slots, use), admitted


def _reserve_each(
    state: State, space: Space, keys: Sequence[bytes], parent: bytes, slots: list[int], use: int
) -> tuple[list[int], Sequence[int]]:
    """As _reserve, for a chain of which some blocks are here, on disk, or named twice."""
    pages, given = state.host.pages, []
    index = state.blocks
    for key in keys:
        block = index.new(space.number, key, parent)
        if pages.states[block]:
            slots.append(_held(pages.states[block]))
        elif state.host.take(space, (block,), PageEvent.RESERVED, use):
            given.append(block)
            slots.append(pages.place(block) + state.facts.data_offset)
        else:
            index.forget_if_nowhere(block)
            break
        parent = key
    return slots, as_run(given)


def _take(state: State, space: Space, blocks: Sequence[int], use: int) -> Sequence[int]:
    """Pages for as many of a new chain's blocks as there is room for, those of a segment in a row
    if they can be; the others are forgotten."""
    begun, depth = 0, state.blocks.depth[blocks[0]]
    for piece in space.segments.pieces(depth, len(blocks)):
        end = begun + piece
        while begun < end:
            given = state.host.take(space, blocks[begun:end], PageEvent.RESERVED, use)
            if not given:
                for block in reversed(blocks[begun:]):
                    state.blocks.forget_if_nowhere(block)
                return blocks[:begun]
            begun += given
    return blocks


def _anywhere(state: State, block: int) -> bool:
    return bool(state.host.pages.states[block] or state.disk.pages.states[block])


def _held(page: int) -> int:
    return Slot.EXISTS if page in READABLE else Slot.BUSY


def complete(
    state: State, session: Session, store: Store, outcome: StoreOutcome, now_s: float
) -> StoreCompleted:
    """The client is done with the pages: they become visible, or are free again."""
    if isinstance(store, Room):  # whose blocks nobody has named
        rooms.end(state, session, store, store.rows)
        return StoreCompleted(0)
    del state.stores[store.ticket]
    session.stores.discard(store.ticket)
    if store.quarantined is not None or outcome is StoreOutcome.ABANDONED:
        leaving.store_over(state, store)
        leaving.work(state, now_s)
        return StoreCompleted(0)
    _seal(state, store.space, store.blocks, now_s)
    watermark.notice(state, store.space.stride_bytes)
    return StoreCompleted(len(store.blocks))


def fill(state: State, session: Session, asked: StoreFill, now_s: float) -> StoreFilled:
    """The client has written a chain to the first pages of its room: it becomes visible. A page
    whose block is here or arriving by another way, or that is left over, is free again. The room
    for the next chain is found last, so that nothing of this one makes way for it.

    Raises BadRequest, with nothing changed, for a chain that the room cannot hold.
    """
    space, sealed, existing = session.spaces[asked.space], 0, 0
    room = state.stores.get(asked.ticket)
    _check_fits(room, space, asked)
    use = state.use()
    if isinstance(room, Room):
        blocks: Sequence[int] = ()
        if room.quarantined is None:
            blocks = _named(state, room, asked.keys, asked.parent, use)
            sealed, existing = len(blocks), len(asked.keys) - len(blocks)
        rooms.end(state, session, room, room.split(len(asked.keys))[1])
        if blocks:
            _seal(state, space, blocks, now_s)
    ticket, offsets = rooms.grant(state, session, space, asked.wanted, use, now_s)
    watermark.notice(state, space.stride_bytes)
    return StoreFilled(sealed, existing, ticket, offsets)


def _check_fits(room: Store | None, space: Space, asked: StoreFill) -> None:
    if not isinstance(room, Room):
        if asked.keys:
            raise BadRequest("keys", len(asked.keys), "without a room there is nothing to fill")
        return
    if room.space is not space:
        raise BadRequest("space", asked.space, f"room {room.ticket} is of another space")
    if len(asked.keys) > room.pages:
        raise BadRequest("keys", len(asked.keys), f"room {room.ticket} has {room.pages} pages")


def _named(
    state: State, room: Room, keys: Sequence[bytes], parent: bytes, use: int
) -> Sequence[int]:
    """The blocks of a chain that got the pages written for them, RESERVED until they are sealed;
    the pages of the others are free again."""
    space, host = room.space, state.host
    discarding.keep_again(state, space, keys)
    base = space.find(parent)
    if base is not None and host.pages.states[base]:
        host.ranking.touch(base, use)
    if not keys:
        return ()
    blocks, begun = state.blocks.new_chain(space.number, keys, parent), 0
    if blocks is None:
        return _named_each(state, room, keys, parent, use)
    for place, count in room.split(len(keys))[0]:
        host.fill(space, blocks[begun : begun + count], place, use)
        begun += count
    return blocks


def _named_each(
    state: State, room: Room, keys: Sequence[bytes], parent: bytes, use: int
) -> Sequence[int]:
    """As _named, for a chain of which some blocks are known already, or named twice."""
    space, host, named = room.space, state.host, []
    for key, place in zip(keys, room.places(), strict=False):
        block = state.blocks.new(space.number, key, parent)
        if host.pages.states[block]:
            host.ranking.touch(block, use)
            host.slab.give_back(place)
        else:
            host.fill(space, (block,), place, use)
            named.append(block)
        parent = key
    return as_run(named)


def _seal(state: State, space: Space, blocks: Sequence[int], now_s: float) -> None:
    disk = state.disk.pages.states
    state.host.seal(blocks, PageEvent.SEALED)
    state.show(space, blocks)
    if state.has_disk:
        free = [block for block in blocks if disk[block] == PageState.FREE]
        state.dirty.update(
            dict.fromkeys(block for block in free if block not in state.host.dead.blocks)
        )
    _recall(state, space, blocks)
    if state.waiting:
        for block in blocks:
            loads.arrived(state, block, now_s)
    state.counters.stored_blocks += len(blocks)
    state.counters.stored_bytes += len(blocks) * space.spec.page_bytes
    writeback.pump(state)


def _recall(state: State, space: Space, blocks: Sequence[int]) -> None:
    """Blocks that were stored before and went are of the class that they were then. Done when the
    store is over, since its client waits for the pages and not for this."""
    see = state.sights.see
    guarded = (state.disk if state.disk_decides else state.host).ranking
    for block, key in zip(blocks, state.blocks.keys_of(blocks), strict=True):
        if count := see(key, space.number):
            state.host.ranking.recall(block, count)
            guarded.chooser.arrived(count, guarded)


def lapse(state: State, store: Store) -> None:
    """The lease ran out: what the client seals from now on is nothing."""
    if isinstance(store, Room):  # its client stores no more
        rooms.lapse(state, store)
        return
    state.counters.fault("lease_ended")
    leaving.store_lapsed(state, store)


def session_gone(state: State, session: Session) -> None:
    for ticket in tuple(session.stores):
        store = state.stores[ticket]
        if isinstance(store, Room):
            rooms.end(state, session, store, store.rows)
        else:
            leaving.store_over(state, state.stores.pop(ticket))
