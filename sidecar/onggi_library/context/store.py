"""Pages of a context in an agent's tiers. What is not found again is an error, never a guess.

An agent is a cache, and gives up what is cold: so pages are counted before they are sent, and what
is new is on disk before as much again goes through the host tier that it could be pushed out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from onggi import Client, StoreOutcome
from onggi_core.identity import ROOT
from onggi_core.quantity import spell_bytes
from onggi_core.wire.requests import SpaceSpec
from onggi_library.context.errors import ContextLost, NoRoom, NotInTime
from onggi_library.context.pages import Pages, Plain
from onggi_library.manager.ledger import Ledger, rooms_of
from onggi_library.manager.pages import Cut

DEADLINE_S: Final = 5.0
"""Of one exchange: the agent may share the interpreter with whatever else runs here."""
WAIT_S: Final = 60.0
"""For room that is there by count, for blocks on disk, for what waits to be written."""
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

    def __init__(
        self, socket: str | os.PathLike[str], space: SpaceSpec, pages: Pages | None = None
    ) -> None:
        """pages: how rows lie in them; as they are if None. Raises ContextLost if no agent
        answers."""
        self._page_bytes = space.page_bytes
        self._pages = pages or Plain()
        self._client = Client(socket, spaces=[space], engine="onggi-library", deadline_s=DEADLINE_S)
        self._flowing = threading.Lock()
        self._new_bytes = 0
        self._touched = False
        stats = self._until(bool, "answer")
        self._host_bytes = int(stats["arena_budget_bytes"])
        self._extent_bytes = int(stats["extent_bytes"])
        self._disk_bytes = int(stats["disk_bytes"])
        self._ledger = Ledger(*rooms_of(stats))

    def put(self, keys: Sequence[bytes], rows: Any, *, parent: bytes = ROOT) -> None:
        """Keep rows, a page a key, as a chain that follows `parent`. Returns when they are kept.
        Raises NoRoom and NotInTime with none of them kept, ContextLost if nobody answers."""
        pages = self._pages.of(rows, len(keys))
        self._count_in(len(keys))
        try:
            self._put_all(keys, pages, parent)
        except NotInTime:
            self.discard(keys)
            raise

    def _put_all(self, keys: Sequence[bytes], pages: Any, parent: bytes) -> None:
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
                    raise self._not_in_time(f"take {len(keys)} blocks that fit", WAIT_S)
                time.sleep(PAUSE_S)

    def fetch(self, keys: Sequence[bytes], rows: Any) -> None:
        """Fill rows, a page a key, in host memory. Raises NotInTime, ContextLost."""
        pages = self._pages.room_for(rows, len(keys))
        if self._client.lookup(keys).ready < len(keys):
            self._tide(len(keys) * self._page_bytes)
        until_s = time.monotonic() + WAIT_S
        while self._client.load(keys, pages, wait_s=WAIT_S) < len(keys):
            if self._lost(keys):
                raise ContextLost(
                    f"some of {len(keys)} blocks that were kept are gone; nothing was computed "
                    "from the others: compute the context again"
                )
            if time.monotonic() > until_s:
                raise self._not_in_time(f"give {len(keys)} blocks that it keeps", WAIT_S)
            time.sleep(PAUSE_S)
        self._pages.give(pages, rows)

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
            self._ledger.discard(self._cut(len(keys)))

    def adopt(self, pages: int) -> None:
        """So many were there before; they take room too."""
        self._ledger.add(self._cut(pages))

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

    def _cut(self, pages: int) -> Cut:
        return Cut(self._page_bytes, pages)

    def _count_in(self, pages: int) -> None:
        wanted = self._cut(pages)
        if not self._ledger.fits(wanted) and self._ledger.anything_dying:
            self._until(lambda stats: bool(stats) and not stats["dead_pages"], "free pages")
            self._ledger.all_gone()
        if not self._ledger.fits(wanted):
            raise self._no_room(pages)
        self._ledger.add(wanted)

    def _no_room(self, pages: int) -> NoRoom:
        ledger = self._ledger
        return NoRoom(
            f"{spell_bytes(pages * self._page_bytes)} more do not fit: "
            f"{spell_bytes(ledger.live_bytes)} are kept, and the larger of host memory and disk "
            f"holds {spell_bytes(ledger.room_bytes)}; give the agent more, or use a shorter "
            "context or fewer sequences"
        )

    def _not_in_time(self, what: str, waited_s: float) -> NotInTime:
        breaker = self._client.stats().get("disk_breaker", "not known")
        return NotInTime(
            f"the agent did not {what}, for {waited_s:.0f} s; its disk's breaker is {breaker}. "
            "Nothing is lost: see to the disk and call again, or close the context"
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
            if not stats and waited > min(DEADLINE_S, WAIT_S):
                raise ContextLost(f"the agent does not answer, for {waited:.0f} s")
            if waited > WAIT_S:
                raise self._not_in_time(what, waited)
            time.sleep(PAUSE_S)
        return stats
