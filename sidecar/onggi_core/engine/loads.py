"""Host tier to client: the longest run that is here or arrives in time, pinned while it is read."""

from __future__ import annotations

from typing import Final

from onggi_core.engine import promotion
from onggi_core.engine.actions import Answer
from onggi_core.engine.session import Load, Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, State
from onggi_core.page import READABLE, Page
from onggi_core.wire.frame import OFFSETS_MAX, Op
from onggi_core.wire.replies import LoadPrepared, Mode
from onggi_core.wire.requests import LoadComplete, LoadOutcome, LoadPrepare

WAIT_MAX_S: Final = 30.0
"""The longest a load may wait for disk; a client that asks for more gets this."""
WAITING_MAX: Final = 1024
"""Loads waiting at once; past it a load gets what is here now."""


def prepare(
    state: State, session: Session, request_id: int, asked: LoadPrepare, now_s: float
) -> None:
    """Pins what is here, starts to bring in the rest, and answers when all of it has arrived or
    the wait is over. The answer may come in a later step."""
    load = Load(state.serial(), session.number, request_id, session.spaces)
    load.asked = len(asked.keys)
    load.deadline_s = now_s + min(asked.wait_ms / 1000, WAIT_MAX_S)
    if not session.announces:
        state.counters.lookup_requests += 1
        state.counters.lookup_blocks += load.asked
    if state.mode is not Mode.PAUSED and not state.stopping:
        if _too_early(state, load, asked):
            state.parked[load] = asked
        else:
            _gather(state, load, asked)
    session.loads.add(load.ticket)
    state.loads[load.ticket] = load
    if load.unready or load in state.parked:
        state.waiting_loads[load] = None
    else:
        _answer(state, load, now_s)


def _gather(state: State, load: Load, asked: LoadPrepare) -> None:
    may_wait = asked.wait_ms > 0 and len(state.waiting_loads) < WAITING_MAX
    use = state.use()
    pinned, pin = load.pinned, state.host.pin  # a long run goes through here for each block
    for key in asked.keys[: OFFSETS_MAX // len(load.spaces)]:
        row: list[Page] = []
        for space in load.spaces:
            page = _page(state, space, key, may_wait=may_wait)
            if page is None or page in pinned or page in load.unready:
                break  # not here; or the key came twice, and no chain holds a block twice
            row.append(page)
            if page.state in READABLE:
                pin(space, page)
                pinned.add(page)
            else:
                load.unready[page] = len(load.rows)
                state.waiting.setdefault(page, []).append(load)
        if len(row) < len(load.spaces):
            _release_pages(state, load, [row])
            break
        load.rows.append(row)
    for space, page in zip(load.spaces, load.rows[-1] if load.rows else (), strict=False):
        space.ranking(state.host.name).touch(page.block.key, use)


def _page(state: State, space: Space, key: bytes, *, may_wait: bool) -> Page | None:
    block = space.blocks.get(key)
    if block is None:
        return None
    if block.host is not None:
        if block.host.state in READABLE or (may_wait and block.host.arriving):
            return block.host
        return None
    return promotion.begin(state, space, block, promotion.Urgency.LOAD) if may_wait else None


def _too_early(state: State, load: Load, asked: LoadPrepare) -> bool:
    """Whether the prompt lies on disk, the client would wait, and the arena has no page yet: an
    engine that outlives its agent asks in the first second of the next one."""
    if state.extents_ready or not asked.wait_ms or len(state.waiting_loads) >= WAITING_MAX:
        return False
    first = [space.blocks.get(key) for space in load.spaces for key in asked.keys[:1]]
    return bool(first) and all(block is not None and block.disk is not None for block in first)


def room_came(state: State, now_s: float) -> None:
    """The first extent is there: what was parked for it goes on."""
    parked, state.parked = state.parked, {}
    for load, asked in parked.items():
        _gather(state, load, asked)
        if not load.unready:
            _answer(state, load, now_s)


def arrived(state: State, page: Page, now_s: float) -> None:
    """A page is readable now: the loads that waited for it pin it."""
    for load in state.waiting.pop(page, ()):
        row = load.unready.pop(page)
        space = load.spaces[load.rows[row].index(page)]
        _pin(state, load, space, page)
        if not load.unready:
            _answer(state, load, now_s)


def failed(state: State, page: Page, now_s: float) -> None:
    """A page will not arrive: the loads that waited for it end before its block."""
    for load in state.waiting.pop(page, ()):
        _cut(state, load, load.unready[page])
        if not load.unready:
            _answer(state, load, now_s)


def time_over(state: State, load: Load, now_s: float) -> None:
    """The wait is over: the load gets the run before the first block that has not arrived."""
    state.counters.fault("late_load")
    _cut(state, load, min(load.unready.values(), default=0))
    _answer(state, load, now_s)


def complete(state: State, session: Session, load: Load, done: LoadComplete) -> None:
    """The client is done with the pages; what it loaded and uses counts as hits."""
    if done.outcome is LoadOutcome.LOADED:
        used = load.rows[: done.blocks]
        from_disk = _unread(used)
        for row in used:
            for page in row:
                page.unread = False
        state.counters.hit_disk_blocks += from_disk
        state.counters.hit_host_blocks += len(used) - from_disk
        state.counters.tokens_saved += len(used) * load.spaces[0].spec.block_tokens
        page_bytes = sum(space.spec.page_bytes for space in load.spaces)
        state.counters.loaded_bytes += len(used) * page_bytes
    release(state, session, load)


def release(state: State, session: Session, load: Load) -> None:
    """Unpins everything and forgets the ticket. Safe at any time in the load's life."""
    _cut(state, load, 0)
    state.waiting_loads.pop(load, None)
    state.parked.pop(load, None)
    state.loads.pop(load.ticket, None)
    session.loads.discard(load.ticket)


def _answer(state: State, load: Load, now_s: float) -> None:
    state.waiting_loads.pop(load, None)
    state.parked.pop(load, None)
    session = state.sessions[load.session]
    if not session.announces:
        state.counters.miss_blocks += load.asked - len(load.rows)
    load.from_disk = _unread(load.rows)
    data = state.facts.data_offset
    offsets = tuple(
        tuple([row[number].place + data for row in load.rows]) for number in range(len(load.spaces))
    )
    ticket = load.ticket if load.rows else 0
    reply = LoadPrepared(ticket, load.from_disk, offsets)
    state.actions.append(Answer(load.session, load.request_id, Op.LOAD_PREPARE, reply))
    load.deadline_s = now_s + LEASE_S
    if load.rows:
        state.loads.move_to_end(load.ticket)
    else:
        release(state, session, load)


def _unread(rows: list[list[Page]]) -> int:
    """Blocks of which a page came from disk and was not loaded since."""
    count = 0
    for row in rows:
        for page in row:
            if page.unread:
                count += 1
                break
    return count


def _pin(state: State, load: Load, space: Space, page: Page) -> None:
    state.host.pin(space, page)
    load.pinned.add(page)


def _cut(state: State, load: Load, rows: int) -> None:
    """Keeps the first `rows` blocks and lets go of the others."""
    gone = load.rows[rows:]
    del load.rows[rows:]
    _release_pages(state, load, gone)


def _release_pages(state: State, load: Load, rows: list[list[Page]]) -> None:
    pinned, unpin = load.pinned, state.host.unpin
    for row in rows:
        for space, page in zip(load.spaces, row, strict=False):
            if page in pinned:
                pinned.remove(page)
                unpin(space, page)
            elif load.unready.pop(page, None) is not None:
                _stop_waiting(state, load, page)


def _stop_waiting(state: State, load: Load, page: Page) -> None:
    waiters = state.waiting.get(page)
    if waiters is None:
        return  # the page is being settled right now, with all that waited for it
    waiters.remove(load)
    if not waiters:
        del state.waiting[page]
