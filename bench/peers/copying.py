"""What a peer does in a copy bench, in an interpreter of its own: rounds of stores or loads.

The same work for everyone: two regions of the same bytes, cut into the same pages, walked through
in the same batches; what is loaded is compared once with what was stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bench.pages import Region, same
from bench.sizes import MIB, POOL_FACTOR

TOUCH_BATCH_BYTES: Final = 8 * MIB
TOUCHED_SHARE: Final = 0.75
"""Of the pool; above that a peer may begin to evict or refuse."""


class Store(Protocol):
    """A peer. Batches are numbered pages `first` to `first + count` of a region."""

    def regions(self) -> tuple[Region, Region]:
        """Where bytes are stored from, and where they are loaded to."""

    def shape(self, page_bytes: int, batch_pages: int) -> None:
        """From here on pages have this size and batches this length; nothing is stored."""

    def store(self, name: int, first: int) -> None:
        """Keep a batch under a number never used before. Raises unless all of it was kept."""

    def load(self, name: int, first: int) -> None:
        """Fill the batch at `first` of the target. Raises unless all of it came."""

    def make_room(self, name: int) -> None:
        """Forget a batch, if the peer does not do that by itself; not timed."""

    def find(self, name: int) -> None:
        """Ask whether a batch is there. Raises if it is not."""


class Copying:
    """The commands that bench.peers.worker sends, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._source, self._target = store.regions()
        self._source.fill_differently()
        self._page_bytes = self._batch_bytes = 0
        self._next_name = 0
        self._names: list[int] = []
        self._walked = 0
        self._round: Callable[[int], None] = self._store_round
        self._touch_pool()

    def _touch_pool(self) -> None:
        """Store until most of the peer's memory was used once: the first touch of a page by the
        kernel is none of its work."""
        self._page_bytes, self._batch_bytes = MIB, TOUCH_BATCH_BYTES
        self._store.shape(MIB, TOUCH_BATCH_BYTES // MIB)
        batches = POOL_FACTOR * self._source.nbytes // TOUCH_BATCH_BYTES
        for number in range(int(batches * TOUCHED_SHARE)):
            self._store_round(number)

    def commands(self) -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {"prepare": self._prepare, "round": self._timed, "find": self._find}

    def _prepare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """what: load or store. For a load everything is stored here, and one batch is checked.
        batches: how many are walked through, 0 for as many as the regions have."""
        self._page_bytes, self._batch_bytes = asked["page_bytes"], asked["batch_bytes"]
        self._store.shape(self._page_bytes, self._batch_bytes // self._page_bytes)
        self._names = []
        self._walked = asked["batches"] or self._source.batches(self._batch_bytes)
        if asked["what"] == "store":
            self._round = self._store_round
            return {}
        for number in range(self._walked):
            self._store_round(number)
        self._round = self._load_round
        self._target.fill(b"\0")
        self._load_round(0)
        sides = (self._source, self._target)
        source, target = (r.pages(0, self._batch_bytes, self._page_bytes) for r in sides)
        if not same(source, target):
            raise ValueError("other bytes came back than were stored")
        return {}

    def _timed(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._round == self._store_round and len(self._names) >= self._walked:
            self._store.make_room(self._names[-self._walked])
        begin_s = time.perf_counter()
        self._round(asked["number"])
        return {"seconds": time.perf_counter() - begin_s}

    def _find(self, asked: dict[str, Any]) -> dict[str, Any]:
        times = []
        for _ in range(asked["count"]):
            begin_s = time.perf_counter()
            self._store.find(self._names[0])
            times.append(time.perf_counter() - begin_s)
        return {"seconds": times}

    def _first(self, number: int) -> int:
        batches = self._source.batches(self._batch_bytes)
        return number % batches * (self._batch_bytes // self._page_bytes)

    def _store_round(self, number: int) -> None:
        name = self._next_name
        self._next_name += 1
        self._store.store(name, self._first(number))
        self._names.append(name)

    def _load_round(self, number: int) -> None:
        self._store.load(self._names[number % len(self._names)], self._first(number))
