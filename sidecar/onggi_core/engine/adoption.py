"""What an earlier life left on disk, taken over before the first request."""

from __future__ import annotations

from onggi_core.engine.events import Adopted
from onggi_core.engine.sessions import space_of
from onggi_core.engine.state import State


def adopt(state: State, event: Adopted) -> None:
    """Every block becomes a hit that is verified when it is first read.

    Raises BadRequest if a place lies outside the tier, overlaps another or is not aligned to the
    page size: the shell filters what its journal says by the segments that are there.
    """
    space = space_of(state, event.space)
    state.disk.slab.adopt(space.stride_bytes, event.places)
    rows = zip(event.keys, event.parents, event.places, event.checksums, strict=True)
    for key, parent, place, checksum in rows:
        block = space.block(key, parent)
        block.checksum = checksum
        state.disk.adopt(space, block, place, state.use())
