"""Taking over what an agent that died left in the arena: its sealed pages, where they lie."""

from __future__ import annotations

from collections.abc import Iterable

from onggi_core.board.survey import Held
from onggi_core.engine import writeback
from onggi_core.engine.sessions import space_of
from onggi_core.engine.state import State
from onggi_core.errors import BadRequest
from onggi_core.index.adopting import Made
from onggi_core.index.ids import as_run
from onggi_core.page import PageState
from onggi_core.policy.chains import Past


def inherit(state: State, held: Iterable[Held]) -> None:
    """Blocks of an extent that is the agent's from this moment. They are sealed and hits at once;
    those that the disk tier lacks are written to it. What cannot be taken over is left free, and
    counted."""
    for part in held:
        taken = _take_over(state, part)
        state.counters.inherited_blocks += taken
        if taken < len(part.keys):
            state.counters.fault("not_inherited")
    writeback.pump(state)


def _take_over(state: State, part: Held) -> int:
    try:
        space = space_of(state, part.space)
    except BadRequest:
        return 0
    if space.spec != part.space:
        return 0
    index, host = state.blocks, state.host
    blocks, places = [], []
    for key, parent, place in zip(part.keys, part.parents, part.places, strict=True):
        block = index.new(space.number, key, parent)
        if index.host.states[block] == PageState.FREE:
            blocks.append(block)
            places.append(place)
    if not blocks or not _given(state, space.stride_bytes, places, blocks):
        for block in blocks:
            index.forget_if_nowhere(block)
        return 0
    # One by one, since children of theirs may be known that are on disk alone or come later
    use, counts = state.use(len(blocks)), state.disk.ranking.counts_of(blocks)
    host.adopt(space, Made(blocks), places, Past(range(use, use + len(blocks)), counts))
    state.show(space, as_run(blocks))
    if state.has_disk:
        disk = index.disk.states
        state.dirty.update({block: None for block in blocks if disk[block] == PageState.FREE})
    return len(blocks)


def _given(state: State, stride: int, places: list[int], blocks: list[int]) -> bool:
    try:
        return state.host.slab.adopt(stride, places, blocks)
    except BadRequest:  # a board that somebody has written to
        return False
