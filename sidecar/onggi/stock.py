"""What one session has of room ahead in one space: at hand, and on its way."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from onggi.call import Call
from onggi.outcomes import Pages, Stored
from onggi.session import Session

STREAM_S: Final = 1.0
"""Stores that follow each other within this are a stream. Its room is given back after as long: the
agent has other uses for the pages, and would take back a lease of theirs in half a minute."""
AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Pages held or on their way: some six milliseconds of copying. While one room is written to the
answers that bring the next ones come."""
ROOMS_MAX: Final = 4
"""The same in rooms: small stores need no more, and each is half of AHEAD_BYTES at most."""


class Room(NamedTuple):
    """Pages to write to, in order. Whoever has taken it ends it by `fill` or `give_back`.

    offsets: where they begin in the arena file. row: how many, from the first on, lie one after the
    other. until_s: when they may be touched no more.
    """

    session: Session
    ticket: int
    offsets: tuple[int, ...]
    row: int
    page_bytes: int
    until_s: float

    def first(self, count: int) -> Pages:
        """So many of its pages."""
        session = self.session
        offsets = self.offsets[:count]
        return Pages(session.epoch, offsets, self.page_bytes, self.until_s, session.number)


class Stock:
    """Of one space and one session. Each change is one call that the interpreter does not part;
    two threads that ask at one time may ask for a room too many."""

    __slots__ = (
        "at_hand",
        "blocks",
        "coming",
        "ended_s",
        "page_bytes",
        "rest_until_s",
        "session",
        "stored",
        "streams",
    )

    def __init__(self, session: Session | None, page_bytes: int) -> None:
        self.session = session
        self.page_bytes = page_bytes
        self.at_hand: deque[Room] = deque()
        self.coming: deque[tuple[Call, int]] = deque()
        """What asks for a room, in order, and for how many pages."""
        self.blocks = 0
        """Of the present store: the next ones will be as large."""
        self.stored = Stored(0, 0, 0)
        """What is answered where it was stored whole."""
        self.streams = False
        self.ended_s = float("-inf")
        """When the last store was over."""
        self.rest_until_s = 0.0

    def begin(self, blocks: int, *, streams: bool) -> None:
        """A store of so many blocks begins."""
        self.blocks, self.streams = blocks, streams
        self.stored = Stored(blocks, 0, 0)

    def missing(self, now_s: float) -> int:
        """Pages of a room to ask for now; 0 for none."""
        ahead = len(self.at_hand) + len(self.coming)
        if ahead >= ROOMS_MAX or not self.streams or now_s < self.rest_until_s:
            return 0
        most = AHEAD_BYTES // self.page_bytes
        pages = min(self.blocks, most // 2)
        held = sum([len(room.offsets) for room in tuple(self.at_hand)])
        held += sum([pages for _, pages in tuple(self.coming)])
        return pages if held + pages <= most else 0

    def take(self, count: int, now_s: float) -> Room | None:
        """The next room, if it has so many pages and may still be touched."""
        try:
            room = self.at_hand.popleft()
        except IndexError:
            return None
        if len(room.offsets) >= count and now_s < room.until_s:
            return room
        self.at_hand.appendleft(room)
        return None


def row_of(offsets: tuple[int, ...], page_bytes: int) -> int:
    """How many pages, from the first on, lie one after the other."""
    first, count = offsets[0], len(offsets)
    if offsets == tuple(range(first, first + count * page_bytes, page_bytes)):
        return count
    row = 1
    while offsets[row] == first + row * page_bytes:
        row += 1
    return row
