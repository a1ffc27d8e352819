"""Blocks that a client says are worth nothing from now on: their pages go before any other's.

Only what is named goes. A block that follows one that went is found again when that comes back, and
is evicted by its age otherwise: to look for all that follow would take as long as there are blocks,
and whoever knows that a chain is worth nothing knows its keys.

A page that somebody reads or writes, a disk job included, goes when that ends (engine/dead.py).
Until a block has gone it may be found, and whoever stores it again keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onggi_core.engine.session import Session
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.page import READABLE, PageState


def discard(state: State, session: Session, keys: Sequence[bytes]) -> int:
    """How many blocks of the session's spaces were found. They leave the board at once and their
    pages part by part: see engine/leaving.py. A chain's end goes first."""
    found = 0
    for space in session.spaces:
        named = dict.fromkeys(map(space.find, reversed(keys)))
        blocks = [block for block in named if block is not None and _has_page(state, block)]
        state.board.take_off(blocks)
        for block in blocks:
            state.dirty.pop(block, None)
        for tier in (state.host, state.disk):
            tier.dead.add(blocks, tier.pages.states)
        found += len(blocks)
    state.counters.discarded_blocks += found
    return found


def keep_again(state: State, space: Space, keys: Sequence[bytes]) -> None:
    """These blocks are being stored: those that were discarded and have not gone stay."""
    if not (state.host.dead.blocks or state.disk.dead.blocks):
        return
    for block in map(space.find, keys):
        if block is None:
            continue
        was_dead = [tier.dead.remove((block,)) for tier in (state.host, state.disk)]
        if any(was_dead) and state.host.pages.states[block] in READABLE:
            if not state.board.shows(block):
                state.show(space, (block,))
            if state.has_disk and state.disk.pages.states[block] == PageState.FREE:
                state.dirty.setdefault(block)


def _has_page(state: State, block: int) -> bool:
    return bool(state.host.pages.states[block] or state.disk.pages.states[block])
