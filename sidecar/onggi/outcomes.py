"""What the client's calls answer: plain values, safe to keep, to compare and to send on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from onggi_core.wire.replies import Slot

NO_EPOCH: Final = b""
"""Of a load or a store that got nothing: it names no arena, so no copy can use it."""

OTHER_PROCESS: Final = 0


@dataclass(frozen=True)
class Looked:
    """Leading blocks that can be loaded now, and that can be loaded or are on their way."""

    ready: int
    pending: int


NOTHING: Final = Looked(0, 0)


@dataclass(frozen=True)
class Pages:
    """Where blocks lie in one arena, and until when they may be touched.

    Plain data: a scheduler may send it to a worker process, which copies through a client of its
    own. offsets: arena file offsets, one a block. epoch: which arena; another one means that the
    agent has restarted and the pages are gone. expires_s: on time.monotonic(), which all processes
    of a machine share; past it the agent may have given the pages to somebody else. session: which
    of this process's sessions holds them; OTHER_PROCESS if none does.
    """

    epoch: bytes
    offsets: tuple[int, ...]
    page_bytes: int
    expires_s: float
    session: int

    def part(self, first: int, count: int) -> Pages:
        """The `count` pages from number `first` on."""
        offsets = self.offsets[first : first + count]
        return replace(self, offsets=offsets)

    def sent(self) -> Pages:
        """The same pages as another process should see them."""
        return replace(self, session=OTHER_PROCESS)


@dataclass(frozen=True)
class Load:
    """A pinned run of blocks, one row of pages a space. blocks = 0: nothing to load, no pin."""

    blocks: int
    rows: tuple[Pages, ...]
    from_disk: int
    ticket: int
    session: int

    def pages(self, space: int = 0) -> Pages:
        """Where the blocks of one space lie. Raises IndexError for a load of nothing."""
        return self.rows[space]

    @property
    def expires_s(self) -> float:
        """When the pin ends; 0.0 for a load of nothing."""
        return self.rows[0].expires_s if self.rows else 0.0


NO_LOAD: Final = Load(0, (), 0, 0, 0)


@dataclass(frozen=True)
class StoreTicket:
    """Room for a chain of blocks. slots: for each key an arena offset, or a Slot: why not."""

    slots: tuple[int, ...]
    epoch: bytes
    page_bytes: int
    expires_s: float
    ticket: int
    session: int

    @property
    def granted(self) -> tuple[int, ...]:
        """Numbers of the keys that got a page."""
        if not self.ticket:
            return ()
        if max(self.slots) < _REFUSED_FROM:  # all of them, as a rule
            return tuple(range(len(self.slots)))
        return tuple(i for i, slot in enumerate(self.slots) if slot < _REFUSED_FROM)

    @property
    def existing(self) -> int:
        """How many of the keys are stored already or are being stored by somebody."""
        return self.slots.count(Slot.EXISTS) + self.slots.count(Slot.BUSY)

    def pages(self) -> Pages:
        """Where the granted blocks go, in the order of `granted`."""
        offsets = self.slots
        if max(offsets, default=0) >= _REFUSED_FROM:
            offsets = tuple(slot for slot in offsets if slot < _REFUSED_FROM)
        return Pages(self.epoch, offsets, self.page_bytes, self.expires_s, self.session)


_REFUSED_FROM: Final = min(Slot)


@dataclass(frozen=True)
class Stored:
    """What became of a store: blocks handed over to be kept, known to be there before without
    copying them again, and refused (no room, no agent)."""

    stored: int
    existing: int
    refused: int
