"""What an obedient client does with its session: each is one small program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim import look
from tests.sim.clients import Call, Pause, Session, Task

from onggi_core.identity import ROOT
from onggi_core.wire.replies import LoadPrepared, Slot, StoreFilled, StorePrepared
from onggi_core.wire.requests import (
    Discard,
    LoadComplete,
    Loaded,
    LoadOutcome,
    LoadPrepare,
    Lookup,
    Missed,
    Prefetch,
    SpaceSpec,
    StatsRequest,
    StoreComplete,
    StoreFill,
    StoreOutcome,
    StorePrepare,
)

UNIT: Final = 4096
"""What places on the board are counted in."""

REFUSED: Final = frozenset(int(slot) for slot in Slot)


def some_chain(session: Session) -> tuple[bytes, ...]:
    """The beginning of one of the world's prompts."""
    rng = session.client.world.rng
    chain = rng.choice(session.client.world.prompts)
    return chain[: rng.randint(1, len(chain))]


def store(session: Session) -> Task:
    """Reserve, fill page by page, seal; now and then think better of it."""
    rng = session.client.world.rng
    number = rng.randrange(len(session.specs))
    chain = some_chain(session)
    begin = rng.choice((0, 0, rng.randrange(len(chain))))
    parent = chain[begin - 1] if begin else ROOT
    yield from fill(session, number, parent, chain[begin:], seal=rng.random() < 0.9)


def store_all_ranks(session: Session) -> Task:
    """As the workers of one engine: the same blocks in every space, one store each."""
    chain = some_chain(session)
    for number in range(len(session.specs)):
        yield from fill(session, number, ROOT, chain, seal=True)


def fill(
    session: Session, number: int, parent: bytes, keys: tuple[bytes, ...], *, seal: bool
) -> Task:
    client = session.client
    reply = yield Call(StorePrepare(number, parent, keys))
    if not isinstance(reply, StorePrepared) or not reply.ticket:
        return
    for key, offset in zip(keys, reply.slots, strict=True):
        if offset not in REFUSED:
            yield from write_page(session, session.specs[number], key, offset)
    outcome = StoreOutcome.SEALED if seal else StoreOutcome.ABANDONED
    yield Pause(client.pause_s() / 10)
    yield Call(StoreComplete(reply.ticket, outcome))


def store_stream(session: Session) -> Task:
    """Stores that follow each other, each to the room that came with the answer to the one before;
    in the end the last room is given back, or kept until the lease or the session ends."""
    rng = session.client.world.rng
    number = rng.randrange(len(session.specs))
    filled: StoreFill = StoreFill(0, number, rng.randint(1, 8), ROOT, ())
    for turn in range(rng.randint(2, 5), 0, -1):
        sent_s = session.client.world.agenda.now_s
        reply = yield Call(filled)
        if not isinstance(reply, StoreFilled) or not reply.ticket:
            return
        chain = some_chain(session)
        begin = rng.choice((0, 0, rng.randrange(len(chain))))
        keys = chain[begin : begin + rng.randint(1, len(reply.offsets))]
        written = True
        for key, offset in zip(keys, reply.offsets, strict=False):
            written = written and may_use(session, sent_s)
            if written:
                yield from write_page(session, session.specs[number], key, offset)
        if not written or not may_use(session, sent_s) or rng.random() < 0.1:
            yield Call(StoreComplete(reply.ticket, StoreOutcome.ABANDONED))
            return
        wanted = rng.randint(0, 8) if turn > 1 else rng.choice((0, 0, 4))
        parent = chain[begin - 1] if begin else ROOT
        filled = StoreFill(reply.ticket, number, wanted, parent, keys)
    yield Pause(session.client.pause_s() / 10)
    yield Call(filled)


def may_use(session: Session, sent_s: float) -> bool:
    """Whether the lease of a room still runs that was asked for at `sent_s`."""
    return session.open and session.client.world.agenda.now_s - sent_s < session.lease_s


def write_page(session: Session, space: SpaceSpec, key: bytes, offset: int) -> Task:
    """A copy takes time, and anything may happen in the middle of it."""
    world, arena = session.client.world, session.life.arena
    content = world.fresh(space, key)
    if world.rng.random() < 0.3:
        half = len(content) // 2
        arena.write(offset, content[:half])
        yield Pause(session.client.pause_s())
        if not session.open:
            return
        arena.write(offset, content, half)
    else:
        arena.write(offset, content)
    world.filled(session, offset, content)


def load(session: Session) -> Task:
    rng = session.client.world.rng
    chain = some_chain(session)
    if rng.random() < 0.3:
        yield Call(Lookup(chain) if rng.random() < 0.5 else Prefetch(chain))
        yield Pause(session.client.pause_s())
    wait_ms = rng.choice((0, 0, 50, 1000, 1000, 5000, 40_000))
    yield from read(session, chain, wait_ms)


def read(session: Session, keys: tuple[bytes, ...], wait_ms: int, *, at_once: bool = False) -> Task:
    """Prepare, copy, look at clock and epoch, complete."""
    client, rng = session.client, session.client.world.rng
    sent_s = client.world.agenda.now_s
    reply = yield Call(LoadPrepare(wait_ms, keys), at_once=at_once)
    if not isinstance(reply, LoadPrepared) or not reply.ticket:
        return
    if rng.random() < 0.3:
        yield Pause(client.pause_s() * rng.choice((0.1, 1.0, 10.0)))
    pages = [
        (space, key, offset)
        for space, row in zip(session.specs, reply.offsets, strict=True)
        for key, offset in zip(keys, row, strict=False)
    ]
    for space, key, offset in pages:
        yield from copy_page(session, space, key, offset, sent_s)
    outcome = rng.choice((LoadOutcome.LOADED, LoadOutcome.LOADED, *LoadOutcome))
    used = reply.blocks if outcome is LoadOutcome.LOADED else 0
    yield Call(LoadComplete(reply.ticket, outcome, used))


def copy_page(session: Session, space: SpaceSpec, key: bytes, offset: int, sent_s: float) -> Task:
    """Copies, now and then in two halves; hands in what it would have believed."""
    world, arena = session.client.world, session.life.arena
    if not _may_believe(session, sent_s):
        return
    content = arena.read(offset, space.page_bytes)
    if world.rng.random() < 0.1:
        yield Pause(session.client.pause_s())
        if not _may_believe(session, sent_s):
            return
        half = len(content) // 2
        content = content[:half] + arena.read(offset, space.page_bytes)[half:]
    world.believed(session, space, key, content)


def _may_believe(session: Session, sent_s: float) -> bool:
    now_s = session.client.world.agenda.now_s
    return session.open and not session.life.arena.retired and now_s - sent_s < session.lease_s


def peek(session: Session) -> Task:
    """Copies what the board shows without asking, and believes it if it is shown afterwards."""
    rng, life = session.client.world.rng, session.life
    if not session.tags or not session.alive:
        return
    board, chain = look.board(life.engine), some_chain(session)
    number = rng.randrange(len(session.specs))
    space = session.specs[number]
    if not board.may_begin(chain[0]):
        yield Call(Missed((chain,)))
        return
    seen = board.look(session.tags[number], b"".join(chain))
    if not seen.blocks or not board.open:
        return
    copies = []
    for unit in seen.units:
        offset = life.facts.data_offset + unit * UNIT
        content = life.arena.peek(offset, space.page_bytes)
        if rng.random() < 0.3:
            yield Pause(session.client.pause_s())
            half = len(content) // 2
            content = content[:half] + life.arena.peek(offset, space.page_bytes)[half:]
        copies.append(content)
    if life.arena.retired or not board.still(seen):
        session.client.world.happened["board changed under a copy"] += 1
        return
    for key, content in zip(chain, copies, strict=False):
        session.client.world.believed(session, space, key, content)
    yield Call(Loaded((chain[: seen.blocks],)))


def trust(session: Session) -> Task:
    """Look a prompt up and load it at once: the promises checker compares the two."""
    chain = some_chain(session)
    if session.alive:
        session.life.ask_now(session.number, Lookup(chain))
    yield from read(session, chain, 0, at_once=True)


def discard(session: Session) -> Task:
    """Say that some blocks are worth nothing; now and then store them again at once."""
    rng = session.client.world.rng
    chain = some_chain(session)
    yield Call(Discard(chain[rng.choice((0, 0, rng.randrange(len(chain)))) :]))
    if rng.random() < 0.2:
        yield from fill(session, rng.randrange(len(session.specs)), ROOT, chain, seal=True)


def stats(session: Session) -> Task:
    yield Call(StatsRequest())


OBEDIENT: Final[dict[Callable[[Session], Task], int]] = {
    store: 30,
    store_all_ranks: 10,
    store_stream: 15,
    load: 40,
    trust: 10,
    peek: 20,
    discard: 10,
    stats: 1,
}
