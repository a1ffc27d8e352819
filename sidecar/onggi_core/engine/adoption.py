"""What an earlier life left on disk, taken over before the first request."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from onggi_core.engine.events import Adopted
from onggi_core.engine.sessions import space_of
from onggi_core.engine.space import Space
from onggi_core.engine.state import State
from onggi_core.errors import BadRequest
from onggi_core.index.adopting import TwiceError, add_adopted, latest_rows
from onggi_core.index.digests import Digests
from onggi_core.page import PageState
from onggi_core.policy.chains import Past
from onggi_core.policy.classes import COUNT_MAX


def adopt(state: State, event: Adopted) -> None:
    """Every block becomes a hit that is verified when it is first read.

    Of rows with the same key or the same place the last one holds. Raises BadRequest, with no
    block adopted, if a place lies outside the tier, overlaps another or is not aligned to the page
    size: the shell filters what its table says by the segments that are there.
    """
    _check(event)
    space = space_of(state, event.space)
    try:
        if not space.table:
            _adopt(state, space, event)
            return
    except TwiceError:
        pass  # seldom: a table of a power cut
    rows = latest_rows(event.keys, event.places)
    rows = [row for row in rows if _nowhere(state, space, event.keys[row])]
    kept = Adopted(
        space.spec,
        keys=[event.keys[row] for row in rows],
        parents=[event.parents[row] for row in rows],
        places=[event.places[row] for row in rows],
        checksums=[event.checksums[row] for row in rows],
        counts=bytes([event.counts[row] for row in rows]) if event.counts else b"",
        ages=[bisect_left(rows, end) for end in event.ages],
    )
    _adopt(state, space, kept)


def _check(event: Adopted) -> None:
    columns = [event.keys, event.parents, event.places, event.checksums]
    if event.counts:
        columns.append(event.counts)
    rows = len(event.keys)
    if any(len(column) != rows for column in columns):
        raise BadRequest("columns", [len(column) for column in columns], "make them equally long")
    if event.counts and max(event.counts) > COUNT_MAX:
        raise BadRequest("counts", max(event.counts), f"each is {COUNT_MAX} at most")
    if event.ages and (list(event.ages) != sorted(event.ages) or event.ages[-1] != rows):
        raise BadRequest("ages", event.ages[-1], f"they go up to {rows}, the number of rows")


def _adopt(state: State, space: Space, event: Adopted) -> None:
    """Raises BadRequest or TwiceError, with nothing adopted."""
    if not event.keys:
        return
    checksums = Digests.of("checksums", event.checksums)
    keys, parents = Digests.of("keys", event.keys), Digests.of("parents", event.parents)
    made = add_adopted(state.blocks, space.number, keys, parents)
    try:
        if not state.disk.slab.adopt(space.stride_bytes, event.places, made.blocks):
            raise TwiceError
    except (BadRequest, TwiceError):
        for block in made.blocks:
            state.blocks.forget_if_nowhere(block)
        raise
    state.blocks.set_checksums(made.blocks, checksums.raw)
    state.disk.adopt(space, made, event.places, _past(state, event))


def _past(state: State, event: Adopted) -> Past:
    """Ages are the first numbers of use, the same in each space: what ranks of one engine hold is
    worth nothing without each other. Within an age the lower number goes first."""
    rows = len(event.keys)
    ages = event.ages or (rows,)
    uses = array("q")
    for use, end in enumerate(ages, 1):
        uses.extend(array("q", [use]) * (end - len(uses)))
    state.used_before(len(ages))
    return Past(uses, event.counts or bytes(rows))


def _nowhere(state: State, space: Space, key: bytes) -> bool:
    block = space.find(key)
    return block is None or state.disk.pages.states[block] == PageState.FREE
