"""Pages asked for ahead of their use: read from disk, and pinned, while others are copied.

A hint would do with less, but an agent reads for hints only while nobody waits for a load. So the
disk would have nothing to do from when the last page of a piece is read until the next piece is
asked for, as long as reading itself takes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Final

from onggi import Client, LoadOutcome, PendingLoad

PART_BYTES: Final = 8 * 1024 * 1024
"""Of one request, which has a cost of its own. While the last one of a piece is copied, those of
the next are read."""


class Coming:
    """The first pages of one chain, in requests that were sent."""

    def __init__(self, client: Client, keys: Sequence[bytes], wait_s: float) -> None:
        """keys: of these pages, and no others. wait_s: how long the agent may take."""
        self.pages = len(keys)
        self._client = client
        step = max(1, PART_BYTES // client.spaces[0].page_bytes)
        self._parts: deque[tuple[int, PendingLoad]] = deque()
        for begin in range(0, len(keys), step):
            some = keys[begin : begin + step]
            self._parts.append((len(some), client.load_prepare(some, wait_s=wait_s)))

    def take(self, pages: Sequence[Any], wait_s: float) -> int:
        """Copy them out, in order; how many of the leading ones came. wait_s: for each request."""
        done = 0
        try:
            while self._parts:
                count, pending = self._parts[0]
                load = pending.wait(wait_s)
                self._parts.popleft()
                if not load.blocks:
                    break
                some = pages[done : done + load.blocks]
                outcome, kept = LoadOutcome.FAILED, False
                try:
                    if self._client.copy_out(load.pages(0), some):
                        outcome = LoadOutcome.LOADED
                finally:
                    kept = self._client.finish_load(load, outcome)
                if not kept or outcome is LoadOutcome.FAILED:
                    break
                done += load.blocks
                if load.blocks < count:
                    break
        finally:
            self.cancel()
        return done

    def cancel(self) -> None:
        """Nobody wants the rest."""
        while self._parts:
            self._parts.popleft()[1].cancel()


class Ahead:
    """What is coming, by the first key of its chain. Thread-safe; a chain is begun and taken by one
    thread, and let go by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: dict[bytes, Coming] = {}

    @property
    def pages(self) -> int:
        with self._lock:
            return sum(one.pages for one in self._coming.values())

    def __contains__(self, first: bytes) -> bool:
        with self._lock:
            return first in self._coming

    def add(self, first: bytes, coming: Coming) -> None:
        with self._lock:
            self._coming[first] = coming

    def pop(self, first: bytes) -> Coming | None:
        with self._lock:
            return self._coming.pop(first, None)

    def keep_only(self, firsts: Collection[bytes]) -> None:
        """Let the others go."""
        with self._lock:
            others = [first for first in self._coming if first not in firsts]
            gone = [self._coming.pop(first) for first in others]
        for one in gone:
            one.cancel()
