"""One thread, one memmove for the whole batch, from private memory to private memory: the best
that any store whose bytes end up in the caller's memory can do."""

from __future__ import annotations

import ctypes

from bench.pages import Region

NAME = "memcpy, 1 thread"


def copy_batch(to: Region, source: Region, batch: int, batch_bytes: int) -> None:
    offset = batch % source.batches(batch_bytes) * batch_bytes
    ctypes.memmove(to.address + offset, source.address + offset, batch_bytes)
