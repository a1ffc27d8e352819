"""A prompt found blocks: both tiers' rankings are told, wherever it found them.

One block a run is told, the last one: whoever gives up leaves first has everything before it by
that. The disk tier is told of hits in the host tier too, since what is read there only after it
left the arena would look cold on disk while it is the hottest of all. Its page table hears of them
a little later, so that the order outlives the agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from onggi_core.engine import admission
from onggi_core.engine.actions import NoteUses
from onggi_core.engine.state import State
from onggi_core.index.ids import as_run
from onggi_core.index.keytable import NO_SPACE
from onggi_core.page import READABLE, PageState

RUNS_MAX: Final = 1024
"""Runs that the page table has not heard of; past it the one used longest ago is forgotten, which
after a restart makes its end look older than it is."""
RUN_MAX: Final = 256
"""Blocks of a run that are noted, from its end: what is before them goes after them. All that wait
take ten megabytes at most."""
TICK_BLOCKS: Final = 4096
"""Blocks noted in a tick, or one run: half a millisecond."""

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
        to_note(state, run[max(0, last - RUN_MAX) : last])
    admission.offer_again(state, run[:ready])


def to_note(state: State, run: Sequence[int]) -> None:
    """The page table is to hear of these blocks."""
    used = state.used_runs
    used.pop(run[-1], None)
    used[run[-1]] = run
    if len(used) > RUNS_MAX:
        del used[next(iter(used))]


def note(state: State) -> None:
    """Tells the page table of blocks that were asked for, as they lie and count now."""
    left = TICK_BLOCKS
    while state.used_runs and left > 0:
        run = state.used_runs.pop(next(iter(state.used_runs)))
        left -= len(run)
        state.actions += _notes(state, run)


def _notes(state: State, run: Sequence[int]) -> Iterator[NoteUses]:
    """Some of the run may be gone since, or their numbers be another space's."""
    spaces, disk = state.blocks.space, state.disk
    number = spaces[run[-1]]
    if number == NO_SPACE:
        return
    if disk.pages.leading_readable(run) < len(run) or any(spaces[n] != number for n in run):
        states = disk.pages.states
        run = as_run([n for n in run if states[n] in READABLE and spaces[n] == number])
    if not run:
        return
    space = state.space_rows[number]
    assert space is not None, "a space with blocks is never dropped"
    counts, at = disk.ranking.counts_of(run), 0
    for place, pages in disk.pages.runs(run, space.stride_bytes, disk.slab.region_bytes):
        yield NoteUses(place, space.stride_bytes, counts[at : at + pages])
        at += pages
