"""A whole chain into the agent's memory: copied to room that is at hand, else to pages asked for.

Pages are asked for in parts, the next of which is asked for before the present one is copied: what
the agent does for it goes on beside the copying.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from onggi import checks
from onggi.bulk import CALLERS, Memory, blocks_in_part, move_in, parts
from onggi.memory import HeldPages
from onggi.outcomes import Stored, StoreTicket
from onggi.pending import PendingStore
from onggi.stock import Room
from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.replies import Slot
from onggi_core.wire.requests import StoreOutcome

if TYPE_CHECKING:
    from onggi.client import Client


class _Chain(NamedTuple):
    """What is to be stored."""

    keys: Sequence[bytes]
    memory: Memory
    parent: bytes
    space: int

    def before(self, at: int) -> bytes:
        return self.keys[at - 1] if at else self.parent


def store(client: Client, keys: Sequence[bytes], pages: Any, parent: bytes, space: int) -> Stored:
    """See Client.store."""
    usual = type(pages) is list and type(keys) in (list, tuple) and type(space) is int
    if usual and type(parent) is bytes and len(parent) == DIGEST_BYTES:
        whole = client.rooms.store(keys, pages, parent, space)
        if whole is not None:
            return whole
    checks.space_number(space, client.spaces)
    page_bytes = client.spaces[space].page_bytes
    memory = Memory(pages, checks.keys_of(keys), page_bytes, writable=False)
    checks.each_length(keys)
    if memory.count != len(keys):
        raise ValueError(f"pages has {memory.count} entries for {len(keys)} keys; use one each")
    chain = _Chain(keys, memory, checks.parent(parent), space)
    rooms, stored = client.rooms, 0
    rooms.begin(space, len(keys))
    try:
        done = existing = rooms.leading_known(keys, space)
        while done < len(keys) and (room := rooms.take(space)) is not None:
            end = min(len(keys), done + len(room.offsets))
            stored += _fill_room(client, room, chain, done, end)
            done = end
        if done < len(keys):
            granted, there = _store_asked(client, chain, done)
            stored, existing = stored + granted, existing + there
    finally:
        rooms.end(space)
    return Stored(stored, existing, len(keys) - stored - existing)


def _fill_room(client: Client, room: Room, chain: _Chain, begin: int, end: int) -> int:
    """Copy blocks into a room and say which they are; how many were handed over."""
    try:
        packed = checks.packed_keys(chain.keys[begin:end])
        held = chain.memory.part(begin, end)
    except CALLERS:
        client.rooms.put_back(room, chain.space)
        raise
    whole = False
    try:
        whole = move_in(client, room.first(end - begin), held)
    finally:
        if whole:
            client.rooms.fill(room, chain.space, chain.before(begin), packed, end - begin)
        else:
            client.rooms.give_back(room)
    return end - begin if whole else 0


def _store_asked(client: Client, chain: _Chain, done: int) -> tuple[int, int]:
    """The chain from number `done` on, in pages that are asked for; how many blocks were stored,
    and how many were there."""
    keys, first = chain.keys, done
    page_bytes = client.spaces[chain.space].page_bytes
    rest = parts(len(keys) - first, blocks_in_part(page_bytes, from_disk=False))
    ahead: deque[PendingStore] = deque()
    stored = existing = 0

    def ask_for_next() -> None:
        for begin, end in itertools.islice(rest, 1):
            some, before = keys[first + begin : first + end], chain.before(first + begin)
            ahead.append(client.store_begin(some, parent=before, space=chain.space))

    ask_for_next()
    try:
        while ahead:
            held = chain.memory.part(done, done + ahead[0].blocks)  # while the answer comes
            ticket = ahead[0].wait()
            ahead.popleft()
            if Slot.NO_ROOM not in ticket.slots:
                ask_for_next()
            stored += _fill(client, ticket, held)
            existing += ticket.existing
            done += len(ticket.slots)
    except CALLERS:  # its next store of these keys must find them free
        for pending in ahead:
            client.finish_store_later(pending.wait(), StoreOutcome.ABANDONED)
        raise
    finally:
        for pending in ahead:
            pending.cancel()
    return stored, existing


def _fill(client: Client, ticket: StoreTicket, held: HeldPages) -> int:
    """Copy into the pages that were granted, and seal them; how many."""
    granted = ticket.granted
    if not granted:
        return 0
    outcome = StoreOutcome.ABANDONED
    try:
        if move_in(client, ticket.pages(), held.chosen(granted)):
            outcome = StoreOutcome.SEALED
    finally:
        client.finish_store_later(ticket, outcome)
    return len(granted) if outcome is StoreOutcome.SEALED else 0
