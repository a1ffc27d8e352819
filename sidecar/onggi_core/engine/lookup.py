"""Which leading blocks are here: the longest consecutive run, over all ranks of the session."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.engine import promotion, uses
from onggi_core.engine.session import Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.index.ids import as_run
from onggi_core.page import ARRIVING, READABLE, PageState
from onggi_core.wire.locate import At
from onggi_core.wire.replies import Looked, Mode


def look(
    state: State, session: Session, keys: Sequence[bytes], now_s: float, *, counted: bool = False
) -> Looked:
    """ready: the run that lies sealed in the host tier. pending: that run and on, over blocks that
    are arriving there or lie sealed on disk, as long as that answers. A block counts only if every
    space has it. counted: this is where its prompt counts."""
    if state.mode is Mode.PAUSED or state.stopping:
        return Looked(0, 0)
    use = state.use()
    ready, pending = len(keys), len(keys)
    disk_answers = state.breaker.may_read(now_s)
    for space in session.spaces:
        ready, pending = _runs(
            state, space, keys[:pending], ready, (use, counted), disk_answers=disk_answers
        )
    return Looked(ready, pending)


def prefetch(state: State, session: Session, keys: Sequence[bytes], now_s: float) -> Looked:
    """As `look`, and starts to bring in what lies on disk, as far as the prefetch budget goes."""
    looked = look(state, session, keys, now_s, counted=True)
    _count(state, session, len(keys), len(keys) - looked.pending)
    if looked.pending > looked.ready:
        _bring_in(state, session, keys[: looked.pending], now_s)
    return looked


def locate(state: State, session: Session, keys: Sequence[bytes]) -> bytes:
    """The nearest tier that each can be had from in all spaces, whether or not what is before it is
    there too. Nothing is ranked or counted by it."""
    if state.mode is Mode.PAUSED:
        return bytes(len(keys))
    host, disk = state.host.pages.states, state.disk.pages.states

    def at(block: int | None) -> At:
        if block is None:
            return At.NOWHERE
        if host[block] in READABLE:
            return At.HOST
        return At.DISK if disk[block] in READABLE else At.NOWHERE

    rows = [[at(block) for block in map(space.find, keys)] for space in session.spaces]
    return bytes(map(min, *rows)) if len(rows) > 1 else bytes(rows[0])


def missed(state: State, session: Session, keys: Sequence[bytes]) -> None:
    """A prompt that was asked about on the board: no block of it was known then."""
    _count(state, session, len(keys), len(keys))


def _count(state: State, session: Session, asked: int, absent: int) -> None:
    session.announces = True
    state.counters.lookup_requests += 1
    state.counters.lookup_blocks += asked
    state.counters.miss_blocks += absent


def _bring_in(state: State, session: Session, keys: Sequence[bytes], now_s: float) -> None:
    """What is here of a prompt does not make room for the rest of it, in no space."""
    states = state.host.pages.states
    runs = [dict.fromkeys(space.known(keys)) for space in session.spaces]  # a key may come twice
    here = [as_run([block for block in run if states[block] in READABLE]) for run in runs]
    for blocks in here:
        state.host.pages.pin(blocks)
    for space, run in zip(session.spaces, runs, strict=True):
        absent = tuple([block for block in run if states[block] == PageState.FREE])
        promotion.begin(state, space, absent, promotion.Urgency.PREFETCH, now_s)
    for blocks in here:
        state.host.unpin(blocks)


def _runs(
    state: State,
    space: Space,
    keys: Sequence[bytes],
    limit: int,
    use: tuple[int, bool],
    *,
    disk_answers: bool,
) -> tuple[int, int]:
    blocks = space.known(keys)
    readable = state.blocks.host.leading_readable(blocks)
    ready = min(readable, limit)
    pending = readable
    host, disk = state.blocks.host.states, state.blocks.disk.states
    for block in blocks[readable:]:
        here = host[block]
        if not (
            here in READABLE
            or here in ARRIVING
            or (disk_answers and here == PageState.FREE and disk[block] in READABLE)
        ):
            break
        pending += 1
    number, counted = use
    if counted:
        uses.asked_for(state, blocks[:pending], ready, number)
    elif ready:
        state.host.ranking.touch(blocks[ready - 1], number)
    return ready, pending
