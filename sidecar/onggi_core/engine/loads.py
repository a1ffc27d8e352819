"""Host tier to client: the longest run that is here or arrives in time, pinned while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi_core.engine import promotion, uses
from onggi_core.engine.actions import Answer
from onggi_core.engine.session import Load, Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import LEASE_S, State
from onggi_core.index.blocks import HINTED, UNREAD
from onggi_core.page import ARRIVING, READABLE, PageState
from onggi_core.wire.frame import OFFSETS_MAX, Op
from onggi_core.wire.replies import LoadPrepared, Mode
from onggi_core.wire.requests import LoadComplete, LoadOutcome, LoadPrepare

WAIT_MAX_S: Final = 30.0
"""The longest a load may wait for disk; a client that asks for more gets this."""
WAITING_MAX: Final = 1024
"""Loads waiting at once; past it a load gets what is here now."""
WAITING_BLOCKS_MAX: Final = 524_288
"""And blocks that they ask for: eight of the largest requests, or 64 prompts of 128K tokens. What a
load waits for costs a hundred bytes a block."""


def prepare(
    state: State, session: Session, request_id: int, asked: LoadPrepare, now_s: float
) -> None:
    """Pins what is here, starts to bring in the rest, and answers when all of it has arrived or
    the wait is over. The answer may come in a later step."""
    load = Load(state.serial(), session.number, request_id, session.spaces)
    load.asked = len(asked.keys)
    load.deadline_s = now_s + min(asked.wait_ms / 1000, WAIT_MAX_S)
    load.counted = not session.announces
    if load.counted:
        state.counters.lookup_requests += 1
        state.counters.lookup_blocks += load.asked
    if state.mode is not Mode.PAUSED and not state.stopping:
        if _too_early(state, load, asked):
            state.parked[load] = asked
        else:
            _gather(state, load, asked, now_s)
    session.loads.add(load.ticket)
    state.loads[load.ticket] = load
    if load.unready or load in state.parked:
        state.waiting_loads[load] = None
    else:
        _answer(state, load, now_s)


def _gather(state: State, load: Load, asked: LoadPrepare, now_s: float) -> None:
    may_wait = asked.wait_ms > 0 and _may_wait(state)
    use = state.use()
    keys: Sequence[bytes] = asked.keys
    most = OFFSETS_MAX // len(load.spaces)
    if len(keys) > most:
        keys = keys[:most]
    load.runs = [_different(space.known(keys)) for space in load.spaces]
    pages = state.blocks.host
    readable = [pages.leading_readable(run) for run in load.runs]
    if may_wait:
        disk_answers = state.breaker.may_read(now_s)
        reach = zip(load.runs, readable, strict=True)
        load.rows = min([_reach(state, run, at, disk_answers=disk_answers) for run, at in reach])
    else:
        load.rows = min(readable)
    rows = load.rows
    for number, run in enumerate(load.runs):
        load.runs[number] = kept = run if len(run) == rows else run[:rows]
        if readable[number] >= rows:
            pages.pin(kept)
    if rows > min(readable):
        _bring_in(state, load, readable, now_s)
    if rows := load.rows:
        for run, at in zip(load.runs, readable, strict=True):
            state.host.ranking.touch(run[rows - 1], use)
            if load.counted:
                uses.asked_for(state, run, min(at, rows), use)


def _may_wait(state: State) -> bool:
    """Whether one more load may wait beside those that do."""
    waiting = state.waiting_loads
    return len(waiting) < WAITING_MAX and sum(load.asked for load in waiting) < WAITING_BLOCKS_MAX


def _different(run: Sequence[int]) -> Sequence[int]:
    """The run up to where a block comes a second time: no chain holds one twice."""
    if type(run) is range or len(set(run)) == len(run):
        return run
    seen: set[int] = set()
    for at, block in enumerate(run):
        if block in seen:
            return run[:at]
        seen.add(block)
    return run


def _reach(state: State, run: Sequence[int], ready: int, *, disk_answers: bool) -> int:
    """How far a run goes over blocks that are here, are arriving, or lie on disk."""
    host, disk = state.blocks.host.states, state.blocks.disk.states
    for at in range(ready, len(run)):
        here = host[run[at]]
        if here == PageState.FREE:
            if not disk_answers or disk[run[at]] not in READABLE:
                return at
        elif here not in READABLE and here not in ARRIVING:
            return at
    return len(run)


def _bring_in(state: State, load: Load, readable: list[int], now_s: float) -> None:
    """Pins what of a run is here, before anything makes room for the rest, and reads the rest."""
    pages = state.blocks.host
    for run, at in zip(load.runs, readable, strict=True):
        if at < load.rows:
            pages.pin([block for block in run if pages.readable(block)])
            for row in range(at, len(run)):
                block = run[row]
                if not pages.readable(block):
                    load.unready[block] = row
                    if pages.states[block] in ARRIVING:
                        _await(state, load, block)
                        if state.blocks.flags[block] & HINTED:
                            state.blocks.flags[block] &= ~HINTED
                            state.counters.prefetch_late_blocks += 1
                        promotion.hurry(state, block)
    for space, run in zip(load.spaces, tuple(load.runs), strict=True):
        absent = [row for row in range(load.rows) if pages.states[run[row]] == PageState.FREE]
        if absent:
            blocks = [run[row] for row in absent]
            urgency = promotion.Urgency.LOAD
            begun = promotion.begin(state, space, blocks, urgency, now_s)
            for block in blocks[:begun]:
                _await(state, load, block)
            if begun < len(absent):
                cut(state, load, absent[begun])


def _await(state: State, load: Load, block: int) -> None:
    state.waiting.setdefault(block, []).append(load)


def _too_early(state: State, load: Load, asked: LoadPrepare) -> bool:
    """Whether the prompt lies on disk, the client would wait, and the arena has no page yet: an
    engine that outlives its agent asks in the first second of the next one."""
    if state.extents_ready or not asked.wait_ms or not _may_wait(state):
        return False
    states = state.blocks.disk.states
    first = [space.find(key) for space in load.spaces for key in asked.keys[:1]]
    return bool(first) and all(block is not None and states[block] in READABLE for block in first)


def room_came(state: State, now_s: float) -> None:
    """The first extent is there: what was parked for it goes on."""
    parked, state.parked = state.parked, {}
    for load, asked in parked.items():
        _gather(state, load, asked, now_s)
        if not load.unready:
            _answer(state, load, now_s)


def arrived(state: State, block: int, now_s: float) -> None:
    """A block is readable now: the loads that waited for it pin it."""
    for load in state.waiting.pop(block, ()):
        del load.unready[block]
        state.host.pages.pin((block,))
        if not load.unready:
            _answer(state, load, now_s)


def failed(state: State, block: int, now_s: float) -> None:
    """A block will not arrive: the loads that waited for it end before it."""
    for load in state.waiting.pop(block, ()):
        cut(state, load, load.unready[block])
        if not load.unready:
            _answer(state, load, now_s)


def time_over(state: State, load: Load, now_s: float) -> None:
    """The wait is over: the load gets the run before the first block that has not arrived."""
    state.counters.fault("late_load")
    cut(state, load, min(load.unready.values(), default=0))
    _answer(state, load, now_s)


def complete(state: State, session: Session, load: Load, done: LoadComplete) -> None:
    """The client is done with the pages; what it loaded and uses counts as hits."""
    if done.outcome is LoadOutcome.LOADED:
        used = [run[: done.blocks] for run in load.runs]
        _count_used(state, load.spaces, used, len(used[0]))
    release(state, session, load)


def read_from_board(state: State, session: Session, keys: Sequence[bytes]) -> None:
    """The client found these blocks by itself and has used them: what a load would count, and move
    in the ranking. What has gone since was used all the same."""
    counted = not session.announces
    if counted:
        state.counters.lookup_requests += 1
        state.counters.lookup_blocks += len(keys)
    runs = [space.known(keys) for space in session.spaces]
    use, ranking = state.use(), state.host.ranking
    states = state.blocks.host.states
    for run in runs:
        if len(run) == len(keys) and states[run[-1]]:
            ranking.touch(run[-1], use)
            if counted:
                uses.asked_for(state, run, state.blocks.host.leading_readable(run), use)
    _count_used(state, session.spaces, runs, len(keys))


def _count_used(
    state: State, spaces: Sequence[Space], runs: Sequence[Sequence[int]], blocks: int
) -> None:
    """runs: those of the `blocks` used ones that are still known, a run a space."""
    from_disk = _unread(state, runs)
    if from_disk:
        flags = state.blocks.flags
        for run in runs:
            for block in run:
                state.counters.prefetch_useful_blocks += bool(flags[block] & HINTED)
                flags[block] &= ~(UNREAD | HINTED)
    state.counters.hit_disk_blocks += from_disk
    state.counters.hit_host_blocks += blocks - from_disk
    state.counters.tokens_saved += blocks * spaces[0].spec.block_tokens
    page_bytes = sum(space.spec.page_bytes for space in spaces)
    state.counters.loaded_bytes += blocks * page_bytes


def release(state: State, session: Session, load: Load) -> None:
    """Unpins everything and forgets the ticket. Safe at any time in the load's life."""
    cut(state, load, 0)
    forget(state, session, load)


def forget(state: State, session: Session, load: Load) -> None:
    """Forgets the ticket; what is pinned stays so until it is cut."""
    state.waiting_loads.pop(load, None)
    state.parked.pop(load, None)
    state.loads.pop(load.ticket, None)
    session.loads.discard(load.ticket)


def _answer(state: State, load: Load, now_s: float) -> None:
    state.waiting_loads.pop(load, None)
    state.parked.pop(load, None)
    session = state.sessions.get(load.session)
    if session is None or load in state.leaving_loads:
        return  # nobody to answer to
    if load.counted:
        state.counters.miss_blocks += load.asked - load.rows
    load.from_disk = _unread(state, load.runs)
    pages, base = state.host.pages, state.facts.data_offset
    offsets = tuple([pages.offsets(run, base) for run in load.runs])
    ticket = load.ticket if load.rows else 0
    reply = LoadPrepared(ticket, load.from_disk, offsets)
    state.actions.append(Answer(load.session, load.request_id, Op.LOAD_PREPARE, reply))
    load.deadline_s = now_s + LEASE_S
    if load.rows:
        state.loads.move_to_end(load.ticket)
    else:
        release(state, session, load)


def _unread(state: State, runs: Sequence[Sequence[int]]) -> int:
    """Blocks of which a page came from disk and was not loaded since."""
    flags = [state.blocks.flags_of(run) for run in runs]
    if not any(map(any, flags)):
        return 0
    return sum(any(flag & UNREAD for flag in row) for row in zip(*flags, strict=False))


def cut(state: State, load: Load, rows: int) -> None:
    """Keeps the first `rows` blocks and lets go of the others."""
    if rows >= load.rows:
        return
    load.rows = rows
    for number, run in enumerate(load.runs):
        gone = run[rows:]
        load.runs[number] = run[:rows]
        if load.unready:
            gone = [block for block in gone if not _stops_waiting(state, load, block)]
        state.host.unpin(gone)


def _stops_waiting(state: State, load: Load, block: int) -> bool:
    if load.unready.pop(block, None) is None:
        return False
    waiters = state.waiting.get(block)
    if waiters is not None:  # else the block is being settled now, with all that waited for it
        waiters.remove(load)
        if not waiters:
            del state.waiting[block]
    return True
