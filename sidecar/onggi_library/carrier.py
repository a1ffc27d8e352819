"""Pages to an agent's tiers and back, and all the waiting for them: one place, bounded, and told.

An agent is a cache, and gives up what is cold. So what is new is on disk before so much goes
through the host tier that it could be pushed out of it, and what comes back comes by parts of the
host tier: one layer, one value may be larger than all of it.

A wait goes on as long as it gets on: a slow disk may take its time for what waits for it, and one
that does nothing for WAIT_S is told of.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi import Client, SpaceSpec, StoreOutcome, fingerprint
from onggi_core.identity import ROOT
from onggi_library.coming import Coming
from onggi_library.manager.ledger import Room, rooms_of

DEADLINE_S: Final = 5.0
"""Of one exchange: an agent in this process shares the interpreter with whatever else runs here."""
SILENT_S: Final = 10.0
"""Of an agent that answers nothing: twice what one exchange may take."""
WAIT_S: Final = 60.0
"""Without getting on: for memory to be touched, pages to be freed, written or read. A disk that
hangs is given up by its breaker, and tried again, within that."""
LOOK_EVERY_S: Final = 0.005
"""Between two looks: some mebibytes of writing."""
PART_PAGES: Final = 64
"""Pages of one store, pinned while they are copied,"""
PART_SHARE: Final = 16
"""and no more than one part in so many of the host tier."""
CHAIN_SHARE: Final = 8
"""One part in so many of the host tier follows one another at most, as far as the agent is told: of
a chain it gives up the end first, and never what is being stored follows. One as long as the tier
would leave nothing to give up."""
WINDOW_SHARE: Final = 4
"""One part in so many of the host tier is loaded, or told of ahead, at a time: what is pinned, what
is read meanwhile and what is written still have room beside it."""
TIDE_SHARE: Final = 2
"""One part in so many of the host tier may be new to it before all that waits for the disk is
waited for: a page is given up first when as much as the whole tier was used after it."""
_LOOK_BYTES: Final = 4096


class Source(enum.Enum):
    """Where pages were."""

    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True)
class Says:
    """How whoever carries says what went wrong. what: "context", or "KVCacheManager"."""

    what: str
    silent: Callable[[str], Exception]
    """Nobody answers."""
    late: Callable[[str], Exception]
    """The agent answers, and does not get on."""


class Carrier:
    """Of one agent. Thread-safe; a wait of another thread ends with close()."""

    def __init__(self, socket: str, says: Says, *, alone: bool = True) -> None:
        """alone: nobody else stores there, so that what waits for the disk can be waited for.
        Raises what `says` has for an agent that does not answer."""
        self._socket = socket
        self._says = says
        self._alone = alone
        self._closed = False
        self._flowing = threading.Lock()
        self._new_bytes = 0
        """That went into the host tier since nothing waited for the disk."""
        self._touched = False
        self._look = self.client(SpaceSpec(fingerprint({"library": "look"}), _LOOK_BYTES, 1))
        stats = self.figures()
        self.host_bytes = int(stats["arena_budget_bytes"])
        self.disk_bytes = int(stats["disk_bytes"])
        self.extent_bytes = int(stats["extent_bytes"])
        self.rooms: tuple[Room, Room] = rooms_of(stats)

    def client(self, space: SpaceSpec) -> Client:
        """For pages of one space. Whoever asked for it closes it."""
        engine = f"onggi library: {self._says.what}"
        return Client(self._socket, spaces=[space], engine=engine, deadline_s=DEADLINE_S)

    def close(self) -> None:
        self._closed = True
        self._look.close()

    # ---- down and up

    def store(
        self,
        client: Client,
        keys: Sequence[bytes],
        pages: Sequence[Any],
        parent: bytes = ROOT,
        depth: int = 0,
    ) -> None:
        """Keep pages that were counted in, which follow `parent`, the last of `depth` pages;
        returns when they are kept. Raises as `says`, with some of them kept."""
        page_bytes = client.spaces[0].page_bytes
        chain = max(1, self.host_bytes // CHAIN_SHARE // page_bytes)
        for begin, end in self._parts(len(keys), page_bytes):
            if (depth + begin) // chain != (depth + begin - 1) // chain:
                parent = ROOT
            self._tide((end - begin) * page_bytes)
            self._wait_for_memory((end - begin) * page_bytes)
            some, until_s = keys[begin:end], time.monotonic() + WAIT_S
            while not _store_part(client, some, parent, pages[begin:end]):
                client.discard(some)
                self.figures()
                self._pause(until_s, f"take {len(some)} pages that fit")
            parent = some[-1]

    def load(
        self, client: Client, keys: Sequence[bytes], pages: Sequence[Any]
    ) -> tuple[Source, int]:
        """Fill the pages; from where, and how many: fewer than there are keys if the next one is
        lost. Raises as `says`."""
        page_bytes, source = client.spaces[0].page_bytes, Source.HOST
        window = self._window(page_bytes)
        for begin in range(0, len(keys), window):
            some, into = keys[begin : begin + window], pages[begin : begin + window]
            if client.lookup(some).ready < len(some):
                source = Source.DISK
                self._tide(len(some) * page_bytes)
            done = self._load_window(client, some, into)
            if done < len(some):
                return source, begin + done
        return source, len(keys)

    def begin(self, client: Client, keys: Sequence[bytes], others: int = 0) -> Coming | None:
        """Ask for the first of these, which take() copies out; None: there is nothing to wait for,
        or no room for them beside so many other pages that are coming."""
        page_bytes = client.spaces[0].page_bytes
        some = keys[: max(0, self._window(page_bytes) - others)]
        if not (self.disk_bytes and some) or client.lookup(some).ready == len(some):
            return None
        self._tide(len(some) * page_bytes)
        return Coming(client, some, WAIT_S)

    def take(self, coming: Coming, pages: Sequence[Any]) -> int:
        """How many of the leading pages came. For the others there is load()."""
        return coming.take(pages, WAIT_S)

    def hint(self, client: Client, keys: Sequence[bytes]) -> None:
        """These will be loaded soon: the first of them come from disk to host memory meanwhile, as
        far as there is room for them beside what is loaded now."""
        page_bytes = client.spaces[0].page_bytes
        some = keys[: self._window(page_bytes)]
        if self.disk_bytes and client.lookup(some).ready < len(some):
            self._tide(len(some) * page_bytes)
            client.prefetch(some)

    def holds(self, client: Client, keys: Sequence[bytes]) -> bool:
        """Whether all of these are there, as far as the agent says."""
        return not keys or client.lookup(keys).pending == len(keys)

    def lost(self, client: Client, keys: Sequence[bytes]) -> bool:
        """An agent that answers lacks a page, and no disk is away that may have it. Raises as
        `says` while nobody knows: no answer in time looks like a page that is not there."""
        if self.holds(client, keys) or not self._disk_answers():
            return False
        until_s = time.monotonic() + WAIT_S
        while (found := client.find(keys)) is None:
            self._pause(until_s, f"say whether it keeps {len(keys)} pages")
        return found.pending < len(keys) and self._disk_answers()

    # ---- waiting

    def until_gone(self) -> None:
        """What was discarded has left its pages."""
        self._until(lambda stats: int(stats["dead_pages"]), "free its pages")

    def until_written(self) -> None:
        """All that was stored is on disk."""
        self._until(lambda stats: int(stats["pending_blocks"]), "write to its disk")

    def stats(self) -> dict[str, Any]:
        """The agent's figures; empty when it is gone or late."""
        return self._look.stats()

    def figures(self) -> dict[str, Any]:
        """The same, waited for."""
        until_s = time.monotonic() + SILENT_S
        while not (stats := self._look.stats()):
            self._check_open()
            if time.monotonic() > until_s:
                raise self._says.silent(
                    f"no agent answers at {self._socket}, for {SILENT_S:g} s; see that one runs "
                    f"there, and make another {self._says.what}"
                )
            time.sleep(LOOK_EVERY_S)
        return stats

    # ---- inside

    def _load_window(self, client: Client, keys: Sequence[bytes], pages: Sequence[Any]) -> int:
        done, until_s = 0, time.monotonic() + WAIT_S
        while True:
            came = client.load(keys[done:], pages[done:], wait_s=WAIT_S)
            done += came
            if done == len(keys) or self.lost(client, keys[done:]):
                return done
            if came:
                until_s = time.monotonic() + WAIT_S
            self._pause(until_s, f"give {len(keys) - done} pages that it keeps")

    def _disk_answers(self) -> bool:
        return bool(self.figures()["disk_breaker"] == "closed")

    def _until(self, left: Callable[[dict[str, Any]], int], what: str) -> None:
        """Until nothing is left, as long as there is less and less."""
        least, until_s = 0, 0.0
        while there := left(self.figures()):
            if not until_s or there < least:
                least, until_s = there, time.monotonic() + WAIT_S
            self._pause(until_s, what)

    def _pause(self, until_s: float, what: str) -> None:
        self._check_open()
        if time.monotonic() > until_s:
            stats = self.figures()
            raise self._says.late(
                f"the agent did not {what}, for {WAIT_S:g} s: {stats['pending_blocks']} pages wait "
                f"for its disk, whose breaker is {stats['disk_breaker']}. Nothing is lost: see to "
                f"the disk and call again, or close this {self._says.what}"
            )
        time.sleep(LOOK_EVERY_S)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"this {self._says.what} is closed; make another one")

    def _parts(self, count: int, page_bytes: int) -> Iterator[tuple[int, int]]:
        most = min(PART_PAGES, max(1, self.host_bytes // PART_SHARE // page_bytes))
        for begin in range(0, count, most):
            yield begin, min(count, begin + most)

    def _window(self, page_bytes: int) -> int:
        return max(1, self.host_bytes // WINDOW_SHARE // page_bytes)

    def _tide(self, nbytes: int) -> None:
        """Before bytes come into the host tier that are new to it."""
        if not (self._alone and self.disk_bytes):
            return
        with self._flowing:
            if self._new_bytes + nbytes > self.host_bytes // TIDE_SHARE:
                self.until_written()
                self._new_bytes = 0
            self._new_bytes += nbytes

    def _wait_for_memory(self, nbytes: int) -> None:
        """An agent that began a moment ago touches its memory bit by bit: nothing is to make room
        that would not have to once all of it is there."""
        if self._touched or not self._alone:
            return

        def missing(stats: dict[str, Any]) -> int:
            self._touched = not stats["arena_coming_bytes"]
            spare = 2 * self.extent_bytes + self.host_bytes // 32
            free = int(stats["arena_ready_bytes"] - stats["host_used_bytes"])
            return 0 if self._touched else max(0, nbytes + spare - free)

        self._until(missing, "touch its memory")


def _store_part(client: Client, keys: Sequence[bytes], parent: bytes, pages: Sequence[Any]) -> bool:
    """Whether all of them are kept now. Room ahead is not asked for: it would push others out."""
    ticket = client.store_prepare(keys, parent=parent)
    if not ticket.ticket:
        return False
    whole = len(ticket.granted) == len(keys) and client.copy_in(ticket.pages(), pages)
    outcome = StoreOutcome.SEALED if whole else StoreOutcome.ABANDONED
    return client.finish_store(ticket, outcome) == len(keys)
