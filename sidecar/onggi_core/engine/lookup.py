"""Which leading blocks are here: the longest consecutive run, over all ranks of the session."""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.engine import promotion
from onggi_core.engine.session import Session
from onggi_core.engine.space import Space, TierName
from onggi_core.engine.state import State
from onggi_core.page import READABLE, Block
from onggi_core.wire.replies import Looked, Mode


def look(state: State, session: Session, keys: Sequence[bytes]) -> Looked:
    """ready: the run that lies sealed in the host tier. pending: that run and on, over blocks that
    are arriving there or lie sealed on disk. A block counts only if every space has it."""
    if state.mode is Mode.PAUSED or state.stopping:
        return Looked(0, 0)
    use = state.use()
    ready, pending = len(keys), len(keys)
    for space in session.spaces:
        ready, pending = _runs(space, keys[:pending], min(ready, pending), use)
    return Looked(ready, pending)


def prefetch(state: State, session: Session, keys: Sequence[bytes]) -> Looked:
    """As `look`, and starts to bring in what lies on disk, as far as the prefetch budget goes."""
    looked = look(state, session, keys)
    session.announces = True
    state.counters.lookup_requests += 1
    state.counters.lookup_blocks += len(keys)
    state.counters.miss_blocks += len(keys) - looked.pending
    for key in keys[looked.ready : looked.pending]:
        for space in session.spaces:
            block = space.blocks.get(key)
            if (
                block is not None
                and block.host is None
                and promotion.begin(state, space, block, promotion.Urgency.PREFETCH) is None
            ):
                return looked
    return looked


def _runs(space: Space, keys: Sequence[bytes], limit: int, use: int) -> tuple[int, int]:
    ranking = space.ranking(TierName.HOST)
    blocks = space.blocks
    ready = 0
    for key in keys[:limit]:
        block = blocks.get(key)
        if block is None or block.host is None or block.host.state not in READABLE:
            break
        ready += 1
    if ready:
        ranking.touch(keys[ready - 1], use)
    pending = ready
    for key in keys[ready:]:
        block = blocks.get(key)
        if block is None or not _coming(block):
            break
        pending += 1
    return ready, pending


def _coming(block: Block) -> bool:
    if block.host is not None:
        return block.host.readable or block.host.arriving
    return block.disk is not None and block.disk.readable
