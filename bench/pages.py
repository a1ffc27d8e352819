"""Memory to copy from and to: touched, private, and larger than any cache of the processor that a
single core fills. Standard library alone: peers' own interpreters load this file too."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import random
from collections.abc import Sequence

from bench.sizes import MIB


class Region:
    """Memory, [nbytes], cut into pages when asked."""

    def __init__(self, nbytes: int, address: int = 0) -> None:
        """address: of memory that a peer wants its bytes in; 0 for a mapping of our own."""
        self.nbytes = nbytes
        if not address:
            self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = address
        self.view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
        self.fill(b"\0")

    def fill(self, pattern: bytes) -> None:
        """Write all of it, so that none is a page the kernel has yet to find."""
        step = pattern * (MIB // len(pattern))
        for begin in range(0, self.nbytes, MIB):
            self.view[begin : begin + MIB] = step[: min(MIB, self.nbytes - begin)]

    def fill_differently(self) -> None:
        """Bytes that differ from page to page, so that a wrong page would be noticed."""
        for begin in range(0, self.nbytes, MIB):
            self.view[begin : begin + MIB] = random.Random(begin).randbytes(4096) * (MIB // 4096)

    def batches(self, batch_bytes: int) -> int:
        return self.nbytes // batch_bytes

    def pages(self, batch: int, batch_bytes: int, page_bytes: int) -> list[memoryview]:
        """The pages of one batch; batches begin anew where the region ends."""
        first = batch % self.batches(batch_bytes) * batch_bytes
        ends = range(first, first + batch_bytes, page_bytes)
        return [self.view[begin : begin + page_bytes] for begin in ends]


def chain(label: str, number: int, blocks: int) -> list[bytes]:
    """Keys of a chain of its own, 16 bytes each."""
    return [
        hashlib.sha256(f"{label}/{number}/{block}".encode()).digest()[:16]
        for block in range(blocks)
    ]


def same(left: Sequence[memoryview], right: Sequence[memoryview]) -> bool:
    return all(a == b for a, b in zip(left, right, strict=True))
