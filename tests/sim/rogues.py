"""Clients that break the rules: by mistake, by being stopped for a minute, or to see what happens.

They share memory with the others, so one that writes where it was given nothing cannot be guarded
against and is not here. All that the agent can guard against is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.sim.clients import Call, Client, Pause, Session, Task
from tests.sim.ops import OBEDIENT, REFUSED, copy_page, some_chain, write_page

from onggi_core.identity import ROOT, block_key
from onggi_core.wire.frame import KEYS_MAX
from onggi_core.wire.replies import LoadPrepared, StoreFilled, StorePrepared
from onggi_core.wire.requests import (
    Hello,
    LoadComplete,
    LoadOutcome,
    LoadPrepare,
    Lookup,
    Prefetch,
    SpaceSpec,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
)

FROZEN_S: Final = (10.0, 31.0, 90.0)
"""How long a client that is stopped stays so: within its lease, past it, far past it."""
HOARD_MAX: Final = 40


class Rogue(Client):
    suspect = True


def frozen_store(session: Session) -> Task:
    """Stopped in the middle of a copy; goes on writing when it wakes, whatever its lease says."""
    rng, chain = session.client.world.rng, some_chain(session)
    number = rng.randrange(len(session.specs))
    reply = yield Call(StorePrepare(number, ROOT, chain))
    if not isinstance(reply, StorePrepared) or not reply.ticket:
        return
    for key, offset in zip(chain, reply.slots, strict=True):
        if offset not in REFUSED:
            yield from write_page(session, session.specs[number], key, offset)
            if rng.random() < 0.5:
                yield Pause(rng.choice(FROZEN_S))
    yield Call(StoreComplete(reply.ticket, rng.choice(tuple(StoreOutcome))))


def frozen_room(session: Session) -> Task:
    """Stopped while it writes to a room, or with one that it has no use for."""
    rng, chain = session.client.world.rng, some_chain(session)
    number = rng.randrange(len(session.specs))
    reply = yield Call(StoreFill(0, number, len(chain), ROOT, ()))
    if not isinstance(reply, StoreFilled) or not reply.ticket:
        return
    yield Pause(rng.choice(FROZEN_S))
    keys = chain[: len(reply.offsets)]
    for key, offset in zip(keys, reply.offsets, strict=False):
        if session.open:
            yield from write_page(session, session.specs[number], key, offset)
        if rng.random() < 0.3:
            yield Pause(rng.choice(FROZEN_S))
    yield Call(StoreFill(reply.ticket, number, rng.choice((0, 4)), ROOT, keys))


def odd_fills(session: Session) -> Task:
    """More blocks than pages, keys twice or backwards, the room of another space, no room, pages
    that nobody wrote to."""
    rng, chain = session.client.world.rng, some_chain(session)
    reply = yield Call(StoreFill(0, 0, rng.choice((1, 5, (1 << 32) - 1)), ROOT, ()))
    yield Call(StoreFill(0, 0, 1, ROOT, chain))
    if not isinstance(reply, StoreFilled) or not reply.ticket:
        return
    ticket, pages = reply.ticket, len(reply.offsets)
    for _ in range(rng.randint(1, 3)):
        keys = rng.choice((chain, chain[::-1], tuple(rng.choices(chain, k=pages)), chain * 9, ()))
        keys = keys[: rng.choice((pages, pages + 1))]
        space = rng.choice((0, 0, 1, 60_000))
        yield Call(StoreFill(ticket, space, rng.randint(0, 3), rng.choice((ROOT, *chain)), keys))
    yield Call(StoreComplete(ticket, rng.choice(tuple(StoreOutcome))))
    prepared = yield Call(StorePrepare(0, ROOT, chain))
    if isinstance(prepared, StorePrepared) and prepared.ticket:
        yield Call(StoreFill(prepared.ticket, 0, 0, ROOT, chain[:1]))
        yield Call(StoreComplete(prepared.ticket, StoreOutcome.ABANDONED))


def frozen_load(session: Session) -> Task:
    """Stopped with its pins held; what it reads after its lease it does not believe."""
    rng, chain = session.client.world.rng, some_chain(session)
    sent_s = session.client.world.agenda.now_s
    reply = yield Call(LoadPrepare(rng.choice((0, 40_000)), chain))
    if not isinstance(reply, LoadPrepared) or not reply.ticket:
        return
    yield Pause(rng.choice(FROZEN_S))
    for key, offset in zip(chain, reply.offsets[0], strict=False):
        yield from copy_page(session, session.specs[0], key, offset, sent_s)
    yield Call(LoadComplete(reply.ticket, rng.choice(tuple(LoadOutcome)), rng.randrange(100)))


def unknown_tickets(session: Session) -> Task:
    """Of nobody, of others, and its own a second time."""
    rng, ledger = session.client.world.rng, session.life.ledger
    held = (*ledger.grants.values(), *ledger.loans.values())
    others = [one.ticket for one in held if one.session != session.number]
    ticket = rng.choice([0, (1 << 64) - 1, *others])
    yield Call(StoreComplete(ticket, rng.choice(tuple(StoreOutcome))))
    yield Call(LoadComplete(ticket, rng.choice(tuple(LoadOutcome)), rng.randrange(3)))
    yield Call(StoreFill(ticket or 1, 0, 1, ROOT, some_chain(session)[:1]))


def seals_unfilled(session: Session) -> Task:
    """Whatever lay in the pages is what it stores; then it completes once more."""
    reply = yield Call(StorePrepare(0, ROOT, some_chain(session)))
    if isinstance(reply, StorePrepared) and reply.ticket:
        yield Call(StoreComplete(reply.ticket, StoreOutcome.SEALED))
        yield Call(StoreComplete(reply.ticket, StoreOutcome.SEALED))


def odd_keys(session: Session) -> Task:
    """Keys twice, rings of parents, a chain backwards."""
    rng, chain = session.client.world.rng, some_chain(session)
    backwards = chain[::-1]
    twice = tuple(rng.choices(chain, k=len(chain) + 2))
    keys, parent = rng.choice(
        (
            (twice, ROOT),
            (backwards, chain[0]),
            (chain[:1], chain[0]),
            (chain, chain[-1]),
            ((), ROOT),
        )
    )
    yield Call(Lookup(keys))
    reply = yield Call(StorePrepare(rng.randrange(len(session.specs)), parent, keys))
    if isinstance(reply, StorePrepared) and reply.ticket:
        yield Call(StoreComplete(reply.ticket, rng.choice(tuple(StoreOutcome))))
    loaded = yield Call(LoadPrepare(1000, keys))
    if isinstance(loaded, LoadPrepared) and loaded.ticket:
        yield Call(LoadComplete(loaded.ticket, LoadOutcome.UNUSED, 0))
    yield Call(Prefetch(keys))


def huge(session: Session) -> Task:
    """As many keys as a frame may hold, or some thousands."""
    rng, chain = session.client.world.rng, some_chain(session)
    many = KEYS_MAX if rng.random() < 0.02 else rng.randint(500, 2000)
    seed = rng.randbytes(8)
    keys = chain + tuple(seed + n.to_bytes(8, "big") for n in range(many - len(chain)))
    request = rng.choice((Lookup(keys), Prefetch(keys), LoadPrepare(50, keys)))
    reply = yield Call(request)
    if isinstance(reply, LoadPrepared) and reply.ticket:
        yield Call(LoadComplete(reply.ticket, LoadOutcome.UNUSED, 0))
    prepared = yield Call(StorePrepare(0, ROOT, keys))
    if isinstance(prepared, StorePrepared) and prepared.ticket:
        yield Call(StoreComplete(prepared.ticket, StoreOutcome.ABANDONED))


def wrong_space(session: Session) -> Task:
    rng = session.client.world.rng
    number = len(session.specs) + rng.choice((0, 1, 60_000))
    yield Call(StorePrepare(number, ROOT, some_chain(session)))


def hello_again(session: Session) -> Task:
    yield Call(Hello(1, "again", session.specs))


def hoard(session: Session) -> Task:
    """Opens tickets and never completes one: the end of its stream is all there is."""
    rng = session.client.world.rng
    for _ in range(rng.randint(1, HOARD_MAX)):
        store = StorePrepare(0, ROOT, some_chain(session)[-1:])
        load = LoadPrepare(rng.choice((0, 1000)), some_chain(session))
        yield Call(rng.choice((store, load, load, StoreFill(0, 0, 1, ROOT, ()))))
    if rng.random() < 0.5 and session.client.at_work == 1:
        session.client.close(session)


def strangers(session: Session) -> Task:
    """Streams of its own that begin wrongly: no HELLO, sizes that cannot be, names said twice."""
    client, rng = session.client, session.client.world.rng
    life, known = session.life, rng.choice(session.specs)
    yield Pause(client.pause_s())
    if not session.alive:
        return
    other = client.open_stream(life)
    big = life.facts.extent_bytes + 1
    new = SpaceSpec(block_key(ROOT, rng.randbytes(4)), 4096, 16)
    first = rng.choice(
        (
            Lookup(some_chain(session)),
            Hello(1, "big", (replace(new, page_bytes=big),)),
            Hello(1, "none", (replace(new, page_bytes=0),)),
            Hello(1, "no tokens", (replace(new, block_tokens=0),)),
            Hello(1, "other sizes", (replace(known, page_bytes=known.page_bytes + 1),)),
            Hello(1, "twice", (new, new)),
            Hello(1, "new", (new, replace(new, fingerprint=rng.randbytes(16)))),
        )
    )
    life.ask(other, first)
    life.ask(other, StorePrepare(0, ROOT, some_chain(session)))
    yield Pause(client.pause_s())
    client.close_stream(life, other)


ROGUE: Final[dict[Callable[[Session], Task], int]] = {
    **OBEDIENT,
    frozen_store: 12,
    frozen_load: 12,
    frozen_room: 8,
    odd_fills: 10,
    unknown_tickets: 15,
    seals_unfilled: 5,
    odd_keys: 15,
    huge: 3,
    wrong_space: 5,
    hello_again: 3,
    hoard: 2,
    strangers: 8,
}
