"""The tiers below the device: an agent's host memory and disk, through the ordinary client.

An agent is a cache, and gives up what is cold. So what comes is counted here before it is sent
(ledger.py), and what is new is written down before so much goes through the host tier that it could
be pushed out of it. A running agent has other clients too: there a value may be lost, and that is
said when it is asked for.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from onggi import Client, SpaceSpec, StoreOutcome, fingerprint
from onggi_core.identity import ROOT
from onggi_core.quantity import spell_bytes
from onggi_library.manager.errors import CLOSED, DoesNotFit, Unreachable
from onggi_library.manager.ledger import Ledger, rooms_of
from onggi_library.manager.pages import Cut, keys_of
from onggi_library.rounding import EXACT

DEADLINE_S: Final = 5.0
"""Of one request: an agent in this process shares the interpreter with whatever else runs here."""
ROOM_WITHIN_S: Final = 60.0
"""For room that is there by the ledger: memory being touched, pages being read or freed."""
WRITTEN_WITHIN_S: Final = 120.0
"""For what waits for the disk: half of the host tier, at most."""
BACK_WITHIN_S: Final = 60.0
"""For a value to come back, a slow disk and its breaker included."""
LOOK_EVERY_S: Final = 0.01
PART_PAGES: Final = 64
"""Pages of one request: up to 64 MiB, pinned while they are copied."""
PART_SHARE: Final = 16
"""And no more than one part in so many of the host tier."""
TIDE_SHARE: Final = 2
"""How much of the host tier may be new to it before all that waits for the disk is waited for: a
block is given up first when as much as the whole tier was used after it."""


class Source(enum.Enum):
    """Where a value was."""

    HOST = "host"
    DISK = "disk"


class LowerTiers:
    """Thread-safe. One client for each size of pages, of which there are few (pages.STEPS_BITS)."""

    def __init__(
        self,
        socket: str,
        *,
        alone: bool,
        owner: int,
        lower: str,
        owner_of: Callable[[int], int] | None = None,
    ) -> None:
        """alone: nobody else stores there. lower: how values lie there, which tells them apart from
        those that lie otherwise. owner_of: of a value, by its serial, where they outlive this
        process and have several; what fits is then what the disk holds. Raises Unreachable."""
        self._socket = socket
        self._alone = alone
        self._owner = owner
        self._owner_of = owner_of or (lambda _: owner)
        self._marks: dict[str, str | int] = {} if lower == EXACT else {"lower": lower}
        self._counting, self._making, self._flowing = [threading.Lock() for _ in range(3)]
        self._clients: dict[int, Client] = {}
        self._new_bytes = 0
        """That went into the host tier since nothing waited for the disk."""
        self._closed = False
        self._look = self._client(4096)
        stats = self._answers(self._look.stats)
        self.host_bytes, self.disk_bytes = stats["arena_budget_bytes"], stats["disk_bytes"]
        self._extent_bytes, self._all_is_there = stats["extent_bytes"], False
        host, disk = rooms_of(stats)
        self.ledger = Ledger(disk) if owner_of else Ledger(host, disk)

    # ---- values

    def reserve(self, cut: Cut) -> None:
        """Count a value in. Raises DoesNotFit, with nothing changed but the discarded gone."""
        with self._counting:
            if not self.ledger.fits(cut) and self.ledger.anything_dying:
                self.wait_until_gone()
                self.ledger.all_gone()
            if not self.ledger.fits(cut):
                raise self._does_not_fit(cut)
            self.ledger.add(cut)

    def store(self, serial: int, cut: Cut, row: torch.Tensor) -> None:
        """Bytes of a value that was reserved, in host memory. Raises DoesNotFit and Unreachable;
        the caller discards it then."""
        client = self._client(cut.page_bytes)
        keys, parent = keys_of(serial, cut.pages, self._owner_of(serial)), ROOT
        for begin, end in self._parts(cut):
            some = keys[begin:end]
            self._tide((end - begin) * cut.page_bytes)
            self._room_is_touched((end - begin) * cut.page_bytes)
            pages = row[begin * cut.page_bytes : end * cut.page_bytes].split(cut.page_bytes)
            until_s = time.monotonic() + ROOM_WITHIN_S
            while not _store_part(client, some, parent, pages):
                client.discard(some)
                self._check_open()
                if time.monotonic() > until_s:
                    self._answers(client.stats)
                    raise self._does_not_fit(cut)
                time.sleep(LOOK_EVERY_S)
            parent = some[-1]

    def load(self, serial: int, cut: Cut, row: torch.Tensor) -> Source | None:
        """Fill a row in host memory; None: the value is lost. Raises Unreachable."""
        client = self._client(cut.page_bytes)
        keys = keys_of(serial, cut.pages, self._owner_of(serial))
        pages = list(row.split(cut.page_bytes))
        until_s = time.monotonic() + BACK_WITHIN_S
        source = Source.HOST
        while True:
            if client.lookup(keys).ready < cut.pages:
                source = Source.DISK
                self._tide(cut.nbytes)
            left_s = max(LOOK_EVERY_S, until_s - time.monotonic())
            if client.load(keys, pages, wait_s=left_s) == cut.pages:
                return source
            if self._is_lost(client, keys):
                return None
            if time.monotonic() > until_s:
                raise Unreachable(f"a value did not come within {BACK_WITHIN_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def hint(self, serial: int, cut: Cut) -> None:
        """The value will be asked for: it comes from disk to host memory meanwhile."""
        self._client(cut.page_bytes).prefetch(keys_of(serial, cut.pages, self._owner_of(serial)))

    def discard(self, serial: int, cut: Cut) -> None:
        """A value that was reserved, stored or not, is worth nothing from now on."""
        self._client(cut.page_bytes).discard(keys_of(serial, cut.pages, self._owner_of(serial)))
        with self._counting:
            self.ledger.discard(cut)

    def holds(self, serial: int, cut: Cut) -> bool:
        """Whether all of a value is there. Raises Unreachable while nobody knows."""
        client = self._client(cut.page_bytes)
        return not self._is_lost(client, keys_of(serial, cut.pages, self._owner_of(serial)))

    def drop(self, serial: int, cut: Cut) -> None:
        """A value that was not reserved here is worth nothing."""
        self._client(cut.page_bytes).discard(keys_of(serial, cut.pages, self._owner_of(serial)))

    def wait_until_gone(self) -> None:
        """What was dropped has left its pages. Raises Unreachable."""
        self._wait_until(lambda stats: not stats["dead_pages"], ROOM_WITHIN_S, "to be free")

    def wait_until_written(self) -> None:
        """All that was stored is on disk. Raises Unreachable."""
        self._wait_until(
            lambda stats: not stats["pending_blocks"], WRITTEN_WITHIN_S, "to be on disk"
        )

    def stats(self) -> dict[str, Any]:
        """The agent's figures; empty when it is gone or late."""
        return self._look.stats()

    def close(self) -> None:
        """Whoever waits for the agent in another thread is told so."""
        self._closed = True
        for client in (*self._clients.values(), self._look):
            client.close()

    # ---- inside

    def _client(self, page_bytes: int) -> Client:
        with self._making:
            client = self._clients.get(page_bytes)
            if client is None:
                named = fingerprint(
                    {"library": self._owner, "page_bytes": page_bytes, **self._marks}
                )
                spaces = [SpaceSpec(named, page_bytes, 1)]
                client = Client(
                    self._socket, spaces=spaces, engine="onggi library", deadline_s=DEADLINE_S
                )
                self._clients[page_bytes] = client
            return client

    def _parts(self, cut: Cut) -> Iterator[tuple[int, int]]:
        most = min(PART_PAGES, max(1, self.host_bytes // PART_SHARE // cut.page_bytes))
        for begin in range(0, cut.pages, most):
            yield begin, min(cut.pages, begin + most)

    def _tide(self, nbytes: int) -> None:
        """Before bytes come into the host tier that are new to it."""
        if not (self._alone and self.disk_bytes):
            return
        with self._flowing:
            if self._new_bytes + nbytes > self.host_bytes // TIDE_SHARE:
                self.wait_until_written()
                self._new_bytes = 0
            self._new_bytes += nbytes

    def _room_is_touched(self, nbytes: int) -> None:
        """An agent that began a moment ago touches its memory bit by bit: nothing is to make room
        that would not have to once all of it is there."""
        if self._all_is_there or not self._alone:
            return

        def there(stats: dict[str, Any]) -> bool:
            self._all_is_there = not stats["arena_coming_bytes"]
            spare = 2 * self._extent_bytes + self.host_bytes // 32
            free = stats["arena_ready_bytes"] - stats["host_used_bytes"]
            return self._all_is_there or free >= nbytes + spare

        self._wait_until(there, ROOM_WITHIN_S, "to be touched")

    def _wait_until(
        self, done: Callable[[dict[str, Any]], bool], within_s: float, what: str
    ) -> None:
        until_s = time.monotonic() + within_s
        while not done(stats := self._answers(self._look.stats)):
            if time.monotonic() > until_s:
                raise Unreachable(
                    f"the agent's pages took more than {within_s:g} s {what} "
                    f"({stats['pending_blocks']} wait for the disk, whose breaker is "
                    f"{stats['disk_breaker']})"
                )
            time.sleep(LOOK_EVERY_S)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(CLOSED)

    def _answers(self, stats: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        until_s = time.monotonic() + ROOM_WITHIN_S
        while not (answer := stats()):
            self._check_open()
            if time.monotonic() > until_s:
                raise Unreachable(f"no agent answers at {self._socket}")
            time.sleep(LOOK_EVERY_S)
        return answer

    def _is_lost(self, client: Client, keys: Sequence[bytes]) -> bool:
        """An agent that answers lacks a page, and no disk is away that may have it."""
        if client.lookup(keys).pending == len(keys):
            return False
        stats = self._answers(client.stats)
        missing = client.lookup(keys).pending < len(keys)
        return missing and stats["disk_breaker"] == "closed" and bool(client.stats())

    def _does_not_fit(self, cut: Cut) -> DoesNotFit:
        room, kept = self.ledger.room_bytes, self.ledger.live_bytes
        return DoesNotFit(
            f"a value of {spell_bytes(cut.nbytes)} does not fit: {spell_bytes(kept)} are kept, and "
            f"host memory and disk hold {spell_bytes(room)}; discard steps, or give the manager "
            f"more cpu_memory or nvm_memory",
            value_bytes=cut.nbytes,
            room_bytes=max(0, room - kept),
        )


def _store_part(
    client: Client, keys: Sequence[bytes], parent: bytes, pages: Sequence[torch.Tensor]
) -> bool:
    """Whether all of them are kept now. Room ahead is not asked for: it would push others out."""
    ticket = client.store_prepare(keys, parent=parent)
    if not ticket.ticket:
        return False
    whole = len(ticket.granted) == len(keys) and client.copy_in(ticket.pages(), pages)
    outcome = StoreOutcome.SEALED if whole else StoreOutcome.ABANDONED
    return client.finish_store(ticket, outcome) == len(keys)
