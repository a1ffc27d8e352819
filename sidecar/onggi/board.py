"""Loads without a round trip: what the agent's board shows is copied at once, and believed if the
board shows the same afterwards. The socket is the authority: whatever is not shown is asked there.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onggi.copies import runs
from onggi_core.board.reader import BoardReader, Seen
from onggi_core.wire.replies import Welcome

if TYPE_CHECKING:
    from onggi.arena import Arena

READS_IN_ORDER: Final = platform.machine().lower() in {"x86_64", "amd64", "i686"}
"""Whether two reads of memory happen in the order they are written in, which is what makes a second
look at the board worth anything. Python has no fence for processors on which they do not."""

UNIT_BYTES: Final = 4096


class Shown:
    """One session's view of the board. A block counts only if every space of the session has it."""

    def __init__(self, reader: BoardReader, arena: Arena, welcome: Welcome) -> None:
        self._reader = reader
        self._arena = arena
        self._tags = welcome.tags
        self._data_offset = welcome.data_offset

    def look(self, keys: Sequence[bytes], space: int = 0) -> Seen | None:
        """Where a whole chain lies in one space; None if a block of it is not shown in all."""
        if not self._reader.open:
            return None
        packed, found = b"".join(keys), None
        for number, tag in enumerate(self._tags):
            seen = self._reader.look(tag, packed)
            if seen.blocks < len(keys):
                return None
            if number == space:
                found = seen
        return found

    def copy_out(self, seen: Seen, addresses: Sequence[int], page_bytes: int) -> bool:
        """Copy the pages to memory. False: they were not shown all the time, and what was copied is
        worth nothing."""
        base = self._data_offset
        offsets = [unit * UNIT_BYTES + base for unit in seen.units]
        pieces = runs(offsets, addresses, page_bytes)
        return self._arena.copy_out(pieces) and self._reader.still(seen)


def shown_to(arena: Arena, welcome: Welcome, spaces: int) -> Shown | None:
    """None: this agent has no board, or this processor cannot read one."""
    if not READS_IN_ORDER or arena.board is None or len(welcome.tags) != spaces:
        return None
    return Shown(arena.board, arena, welcome)
