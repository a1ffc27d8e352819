"""memmove of a whole batch, from private memory to private memory: the best that any store whose
bytes end up in the caller's memory can do. With two threads: each copies half, at once."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

from bench.pages import Region


def copy_batch(to: Region, source: Region, batch: int, batch_bytes: int) -> None:
    offset = batch % source.batches(batch_bytes) * batch_bytes
    ctypes.memmove(to.address + offset, source.address + offset, batch_bytes)


def copy_two(
    threads: ThreadPoolExecutor, to: Region, source: Region, batch: int, batch_bytes: int
) -> None:
    """Batches `batch` and the one half the region away, each on a thread of its own."""
    away = source.batches(batch_bytes) // 2
    pair = (batch, batch + away)
    list(threads.map(lambda one: copy_batch(to, source, one, batch_bytes), pair))
