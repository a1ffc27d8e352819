"""A prompt found blocks: both tiers' rankings are told, wherever it found them.

One block a run is told, the last one: whoever gives up leaves first has everything before it by
that. The disk tier is told of hits in the host tier too, since what is read there only after it
left the arena would look cold on disk while it is the hottest of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi_core.engine import admission
from onggi_core.engine.state import State
from onggi_core.page import PageState

_FREE: Final = bytes([PageState.FREE])


def asked_for(state: State, run: Sequence[int], ready: int, use: int) -> None:
    """A prompt was asked about, for the one time that it counts, and these blocks are in the tiers
    or on their way; the first `ready` may be read in the host tier now."""
    if ready:
        state.host.ranking.hit(run[ready - 1], use)
    if not state.has_disk:
        return
    last = len(state.disk.pages.states_of(run).rstrip(_FREE))
    if last:
        state.disk.ranking.hit(run[last - 1], use)
    admission.offer_again(state, run[:ready])
