"""A page's life as one table, for every tier.

A page is a slot in one tier that holds one block of one rank. Each change of state goes through
`move`, so a double owner, a read of a page being written or a reuse of a page being read is an
IllegalMove at the moment it happens and not a wrong byte later.

Being written down to disk is not a state of its own: the writer pins the page like any reader,
which is exactly what it is. See docs/decisions/0002-a-demotion-is-a-pin.md.
"""

from __future__ import annotations

import enum
from typing import Final

from onggi_core.errors import IllegalMove


class PageState(enum.IntEnum):
    FREE = 0
    RESERVED = 1
    """Being filled by a client (host) or by the writer (disk). Nobody reads it."""
    PROMOTING = 2
    """Host only: being filled from disk; its checksum has not been seen yet."""
    SEALED = 3
    """Holds a block's bytes; may be pinned or evicted."""
    READING = 4
    """Sealed, and somebody is reading it: not evictable."""
    QUARANTINED = 5
    """Its store's lease ran out, but the client lives and may still be writing: not reusable."""
    RETIRED = 6
    """Disk only: the device failed here; never used again in this life of the agent."""


class PageEvent(enum.IntEnum):
    RESERVED = 0
    SEALED = 1
    ABANDONED = 2
    LEASE_ENDED = 3
    PROMOTION_BEGAN = 4
    VERIFIED = 5
    PROMOTION_FAILED = 6
    ADOPTED = 7
    PINNED = 8
    LAST_UNPINNED = 9
    EVICTED = 10
    FAULTED = 11


_S, _E = PageState, PageEvent
MOVES: Final[dict[tuple[PageState, PageEvent], PageState]] = {
    (_S.FREE, _E.RESERVED): _S.RESERVED,
    (_S.RESERVED, _E.SEALED): _S.SEALED,
    (_S.RESERVED, _E.ABANDONED): _S.FREE,
    (_S.RESERVED, _E.LEASE_ENDED): _S.QUARANTINED,
    (_S.RESERVED, _E.FAULTED): _S.RETIRED,
    (_S.QUARANTINED, _E.ABANDONED): _S.FREE,
    (_S.FREE, _E.PROMOTION_BEGAN): _S.PROMOTING,
    (_S.PROMOTING, _E.VERIFIED): _S.SEALED,
    (_S.PROMOTING, _E.PROMOTION_FAILED): _S.FREE,
    (_S.FREE, _E.ADOPTED): _S.SEALED,
    (_S.SEALED, _E.PINNED): _S.READING,
    (_S.READING, _E.PINNED): _S.READING,
    (_S.READING, _E.LAST_UNPINNED): _S.SEALED,
    (_S.SEALED, _E.EVICTED): _S.FREE,
    (_S.SEALED, _E.FAULTED): _S.RETIRED,
}

READABLE: Final = frozenset({PageState.SEALED, PageState.READING})
ARRIVING: Final = frozenset({PageState.RESERVED, PageState.PROMOTING})


def move(state: PageState, event: PageEvent) -> PageState:
    """The state after `event`. Raises IllegalMove for a pair the table lacks."""
    after = MOVES.get((state, event))
    if after is None:
        raise IllegalMove("page", PageState(state).name, event.name)
    return after


ILLEGAL: Final = 255
"""In AFTER: a pair that MOVES lacks."""


def _after(event: PageEvent) -> bytes:
    table = bytearray([ILLEGAL]) * 256
    for (state, on), to in MOVES.items():
        if on is event:
            table[state] = to
    return bytes(table)


AFTER: Final = tuple(_after(event) for event in PageEvent)
"""MOVES as one table an event, the state after by the state before: `bytes.translate` moves a run
of pages with one of these."""
