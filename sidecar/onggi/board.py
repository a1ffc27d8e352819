"""Loads without a round trip: what the agent's board shows is copied at once, and believed if the
board shows the same afterwards. The socket is the authority: whatever is not shown is asked there.
"""

from __future__ import annotations

import platform
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from onggi.copies import Piece, cut, runs
from onggi.crew import move
from onggi.memory import HeldPages, hold_pages
from onggi_core.board.reader import BoardReader, Seen
from onggi_core.geometry import ALIGN_BYTES
from onggi_core.wire.replies import Welcome

if TYPE_CHECKING:
    from onggi.arena import Arena

READS_IN_ORDER: Final = platform.machine().lower() in {"x86_64", "amd64", "i686"}
"""Whether two reads of memory happen in the order they are written in, which is what makes a second
look at the board worth anything. Python has no fence for processors on which they do not."""


class Shown:
    """One session's view of the board. A block counts only if every space of the session has it."""

    def __init__(self, reader: BoardReader, arena: Arena, welcome: Welcome) -> None:
        self._reader = reader
        self._arena = arena
        self._tags = welcome.tags
        self._data_offset = welcome.data_offset
        self.lacks = [partial(reader.lacks, tag) for tag in welcome.tags]
        """For each space: whether a block is surely not shown in it."""

    def look(self, keys: Sequence[bytes], space: int = 0) -> Seen | None:
        """Where a whole chain lies in one space; None if a block of it is not shown in all."""
        if not self._reader.open:
            return None
        try:
            packed, found = b"".join(keys), None
        except TypeError:  # the caller's: it is told what is wrong where the agent is asked
            return None
        for number, tag in enumerate(self._tags):
            seen = self._reader.look(tag, packed)
            if len(seen.units) < len(keys):
                return None
            if number == space:
                found = seen
        return found

    def leading(self, keys: Sequence[bytes], space: int) -> int:
        """How many of the first blocks of a chain are shown in one space. Cheapest where it is
        none, as for nearly all that is stored."""
        look, tag = self._reader.look, self._tags[space]
        if not keys or not look(tag, keys[0]).units or not self._reader.open:
            return 0
        return len(look(tag, b"".join(keys)).units)

    def load_row(
        self, keys: Sequence[bytes], pages: Sequence[Any], page_bytes: int, space: int
    ) -> bool:
        """load() of the usual chain: in a row on the board, of a session with one space. Flat,
        since none of its code is in a cache after the copy before. False: it is not that, or was
        not shown all the time."""
        reader, arena, count = self._reader, self._arena, len(keys)
        if len(self._tags) != 1:
            return False
        try:
            row = reader.row(self._tags[space], b"".join(keys))
        except TypeError:  # the caller's: he is told what is wrong where the agent is asked
            return False
        if row is None or len(row[0]) != count:
            return False
        units, stamps_at, stamps = row
        addresses, _keeper = hold_pages(pages, page_bytes, writable=True)
        step, nbytes = page_bytes // ALIGN_BYTES, count * page_bytes
        first, to = units[0], addresses[0]
        begin, most = first * ALIGN_BYTES + self._data_offset, arena.copy_max_bytes
        if (
            page_bytes % ALIGN_BYTES == 0
            and units == array("I", range(first, first + count * step, step))
            and addresses == [*range(to, to + nbytes, page_bytes)]
        ):
            pieces = [(begin, to, nbytes)]
            if nbytes > most:
                pieces = cut(pieces, most)
        else:
            pieces = self._cut(units, addresses, page_bytes)
        if not self._copy_out(pieces):
            return False
        stamped = reader.buffer[stamps_at : stamps_at + len(stamps)] == stamps
        return stamped and arena.alive

    def _cut(self, units: Sequence[int], addresses: Sequence[int], page_bytes: int) -> list[Piece]:
        """The copies for blocks that begin at these places."""
        offsets = [unit * ALIGN_BYTES + self._data_offset for unit in units]
        return cut(runs(offsets, addresses, page_bytes), self._arena.copy_max_bytes)

    def load(
        self, keys: Sequence[bytes], hold: Callable[[], HeldPages], page_bytes: int, space: int
    ) -> bool:
        """Copy a whole chain to memory. False: it was not shown all the time, and what was copied,
        if anything, is worth nothing. It holds nobody's page, so the session may end under it.
        hold: gives the memory, once it is known that there is something for it."""
        seen = self.look(keys, space)
        if seen is None:
            return False
        arena = self._arena
        pieces = self._cut(seen.units, hold().addresses, page_bytes)
        return self._copy_out(pieces) and arena.alive and self._reader.still(seen)

    def _copy_out(self, pieces: Sequence[Piece]) -> bool:
        arena, moves = self._arena, []
        for offset, to, nbytes in pieces:
            if offset + nbytes > arena.file_bytes:
                return False  # another block's place, read while the board changed
            arena.prepare(offset, nbytes)
            moves.append((to, arena.address + offset, nbytes))
        return move(moves, arena.is_alive)


def shown_to(arena: Arena, welcome: Welcome, spaces: int) -> Shown | None:
    """None: this agent has no board, or this processor cannot read one."""
    if not READS_IN_ORDER or arena.board is None or len(welcome.tags) != spaces:
        return None
    return Shown(arena.board, arena, welcome)
