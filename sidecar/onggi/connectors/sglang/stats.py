"""What was moved since SGLang last asked, in the numbers that its own metrics take."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

KEPT_MAX: Final = 1024
"""Transfers between two questions; older ones go uncounted."""


class Moved:
    """Pages and GB/s of each transfer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gets: deque[tuple[int, float]] = deque(maxlen=KEPT_MAX)
        self._sets: deque[tuple[int, float]] = deque(maxlen=KEPT_MAX)

    def got(self, pages: int, nbytes: int, took_s: float) -> None:
        self._note(self._gets, pages, nbytes, took_s)

    def kept(self, pages: int, nbytes: int, took_s: float) -> None:
        self._note(self._sets, pages, nbytes, took_s)

    def _note(self, to: deque[tuple[int, float]], pages: int, nbytes: int, took_s: float) -> None:
        if pages:
            with self._lock:
                to.append((pages, nbytes / 1e9 / max(took_s, 1e-9)))

    def take(self, into: Any) -> Any:
        """Moved into a StorageMetrics, and counted no more."""
        with self._lock:
            gets, sets = list(self._gets), list(self._sets)
            self._gets.clear()
            self._sets.clear()
        into.prefetch_pgs += [pages for pages, _ in gets]
        into.prefetch_bandwidth += [rate for _, rate in gets]
        into.backup_pgs += [pages for pages, _ in sets]
        into.backup_bandwidth += [rate for _, rate in sets]
        return into
