"""Pages of a context in an agent's tiers. What is not found again is an error, never a guess.

An agent is a cache, and gives up what is cold: so pages are counted before they are sent, and what
is new is on disk before as much again goes through the host tier that it could be pushed out.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from onggi import Client, StoreOutcome
from onggi_core.identity import ROOT
from onggi_core.quantity import spell_bytes
from onggi_core.wire.requests import SpaceSpec
from onggi_library.context.errors import ContextLost, NoRoom
from onggi_library.manager.ledger import disk_room, host_room

DEADLINE_S: Final = 5.0
"""Of one exchange: the agent may share the interpreter with whatever else runs here."""
WAIT_S: Final = 60.0
"""For room that is there by count, for blocks on disk, for what waits to be written. A disk that
hangs longer has failed."""
PAUSE_S: Final = 0.005
"""Between two looks: some mebibytes of writing."""
PART_PAGES: Final = 64
"""Pages of one store, pinned while they are copied,"""
PART_SHARE: Final = 16
"""and no more than one part in so many of the host tier."""
TIDE_SHARE: Final = 2
"""One part in so many of the host tier may be new to it before all that waits for the disk is
waited for: a block is given up first when as much as the whole tier was used after it."""


class PageStore:
    """Pages of one space. May be called from two threads, one of which only fetches."""

    def __init__(self, socket: str | os.PathLike[str], space: SpaceSpec) -> None:
        """Raises ContextLost if no agent answers."""
        self._page_bytes = space.page_bytes
        self._client = Client(socket, spaces=[space], engine="onggi-library", deadline_s=DEADLINE_S)
        self._flowing = threading.Lock()
        self._new_bytes = 0
        self._touched = False
        self._kept = self._dead = 0
        stats = self._until(bool, "answer")
        self._host_bytes = int(stats["arena_budget_bytes"])
        self._extent_bytes = int(stats["extent_bytes"])
        self._disk_bytes = int(stats["disk_bytes"])
        self._rooms = (
            host_room(self._extent_bytes, self._host_bytes),
            disk_room(int(stats["segment_bytes"]), self._disk_bytes),
        )

    def put(self, keys: Sequence[bytes], rows: Any, *, parent: bytes = ROOT) -> None:
        """Keep rows, a page a key, as a chain that follows `parent`. Returns when they are kept.
        Raises NoRoom, ContextLost if nobody answers."""
        self._count_in(len(keys))
        pages = rows.contiguous().cpu().view(len(keys), -1)
        for begin, end in self._parts(len(keys)):
            nbytes = (end - begin) * self._page_bytes
            self._tide(nbytes)
            self._wait_for_memory(nbytes)
            before = keys[begin - 1] if begin else parent
            until_s = time.monotonic() + WAIT_S
            while not self._put_part(keys[begin:end], pages[begin:end], before):
                self._client.discard(keys[begin:end])
                if not self._client.stats():
                    raise ContextLost("the agent does not answer; what it kept is gone")
                if time.monotonic() > until_s:
                    raise self._no_room(len(keys))
                time.sleep(PAUSE_S)

    def fetch(self, keys: Sequence[bytes], rows: Any) -> None:
        """Fill rows, a page a key, in host memory. Raises ContextLost."""
        pages = rows.view(len(keys), -1)
        if self._client.lookup(keys).ready < len(keys):
            self._tide(len(keys) * self._page_bytes)
        until_s = time.monotonic() + WAIT_S
        while self._client.load(keys, pages, wait_s=WAIT_S) < len(keys):
            if self._lost(keys) or time.monotonic() > until_s:
                raise ContextLost(
                    f"some of {len(keys)} blocks that were kept are gone, or did not come within "
                    f"{WAIT_S:g} s; nothing was computed from them: compute the context again"
                )
            time.sleep(PAUSE_S)

    def _lost(self, keys: Sequence[bytes]) -> bool:
        """An agent that answers lacks a page, and no disk is away that may have it."""
        if self.holds(keys):
            return False
        closed = self._until(bool, "answer")["disk_breaker"] == "closed"
        return closed and not self.holds(keys) and bool(self._client.stats())

    def hint(self, keys: Sequence[bytes]) -> None:
        """These will be fetched next: what lies on disk comes to host memory meanwhile."""
        if self._disk_bytes and self._client.lookup(keys).ready < len(keys):
            self._tide(len(keys) * self._page_bytes)
            self._client.prefetch(keys)

    def holds(self, keys: Sequence[bytes]) -> bool:
        """Whether all of these are there."""
        return not keys or self._client.lookup(keys).pending == len(keys)

    def discard(self, keys: Sequence[bytes]) -> None:
        """They are worth nothing to anybody from now on."""
        if keys:
            self._client.discard(keys)
            self._kept -= len(keys)
            self._dead += len(keys)

    def adopt(self, pages: int) -> None:
        """So many were there before; they take room too."""
        self._kept += pages

    def stats(self) -> dict[str, Any]:
        """See Client.stats."""
        return self._client.stats()

    def close(self) -> None:
        self._client.close()

    # ---- inside

    def _put_part(self, keys: Sequence[bytes], pages: Any, parent: bytes) -> bool:
        """Whether all of them are kept now. Room ahead is not asked for: it pushes others out."""
        ticket = self._client.store_prepare(keys, parent=parent)
        if not ticket.ticket:
            return False
        whole = len(ticket.granted) == len(keys)
        whole = whole and self._client.copy_in(ticket.pages(), list(pages))
        outcome = StoreOutcome.SEALED if whole else StoreOutcome.ABANDONED
        return self._client.finish_store(ticket, outcome) == len(keys)

    def _count_in(self, pages: int) -> None:
        if not self._fits(pages) and self._dead:
            self._until(lambda stats: bool(stats) and not stats["dead_pages"], "free pages")
            self._dead = 0
        if not self._fits(pages):
            raise self._no_room(pages)
        self._kept += pages

    def _fits(self, pages: int) -> bool:
        wanted = Counter({self._page_bytes: self._kept + self._dead + pages})
        return any(room.holds(wanted) for room in self._rooms)

    def _no_room(self, pages: int) -> NoRoom:
        size, room = self._page_bytes, max(room.nbytes for room in self._rooms)
        return NoRoom(
            f"{spell_bytes(pages * size)} more do not fit: {spell_bytes(self._kept * size)} are "
            f"kept, and the larger of host memory and disk holds {spell_bytes(room)}; give the "
            "agent more, or use a shorter context or fewer sequences"
        )

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        most = min(PART_PAGES, max(1, self._host_bytes // PART_SHARE // self._page_bytes))
        for begin in range(0, count, most):
            yield begin, min(count, begin + most)

    def _tide(self, nbytes: int) -> None:
        """Before bytes come into the host tier that are new to it."""
        if not self._disk_bytes:
            return
        with self._flowing:
            if self._new_bytes + nbytes > self._host_bytes // TIDE_SHARE:
                self._until(
                    lambda stats: bool(stats) and not stats["pending_blocks"], "write to its disk"
                )
                self._new_bytes = 0
            self._new_bytes += nbytes

    def _wait_for_memory(self, nbytes: int) -> None:
        """An agent that began a moment ago touches its memory bit by bit: nothing is to make room
        that would not have to once all of it is there."""
        if self._touched:
            return

        def there(stats: dict[str, Any]) -> bool:
            if not stats:
                return False
            self._touched = not stats["arena_coming_bytes"]
            spare = 2 * self._extent_bytes + self._host_bytes // 32
            free = stats["arena_ready_bytes"] - stats["host_used_bytes"]
            return self._touched or bool(free >= nbytes + spare)

        self._until(there, "touch its memory")

    def _until(self, done: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        begun = time.monotonic()
        while not done(stats := self._client.stats()):
            waited = time.monotonic() - begun
            if waited > WAIT_S or (not stats and waited > DEADLINE_S):
                silent = "did not " + what if stats else "does not answer"
                raise ContextLost(f"the agent {silent}, for {waited:.0f} s")
            time.sleep(PAUSE_S)
        return stats
