"""The arena as memory: extents that are there or not, and a life that ends."""

from __future__ import annotations

from tests.sim.broken import Broken
from tests.sim.pages import SCALE, scaled

from onggi_core.arena_header import DATA_OFFSET_BYTES


class Arena:
    """One file of one life. A page outside a touched extent is nobody's: using it is a fault."""

    def __init__(self, extents: int, extent_bytes: int) -> None:
        self.extents = extents
        self.extent_bytes = extent_bytes
        self.ready: set[int] = set()
        self.retired = False
        """The agent is gone: the epoch is zeroed and the memory freed. Late writes land nowhere."""
        self._bytes = bytearray(scaled(extents * extent_bytes))

    def touch(self, number: int) -> None:
        self.ready.add(number)

    def release(self, number: int) -> None:
        """A hole is punched: the memory is the node's again."""
        if number not in self.ready:
            raise Broken("budgets", f"extent {number} was released and is not there")
        self.ready.remove(number)
        size = scaled(self.extent_bytes)
        self._bytes[number * size : (number + 1) * size] = bytes(size)

    def extent(self, number: int) -> bytes:
        """What one holds, as its memory is."""
        size = scaled(self.extent_bytes)
        return bytes(self._bytes[number * size : (number + 1) * size])

    def move_in(self, number: int, content: bytes) -> None:
        """An extent that is being touched gets what the same one of another arena held."""
        at = number * scaled(self.extent_bytes)
        self._bytes[at : at + len(content)] = content

    def retire(self) -> None:
        self.retired = True
        self._bytes = bytearray(len(self._bytes))

    def read(self, offset: int, page_bytes: int) -> bytes:
        at = self._at(offset, page_bytes)
        return bytes(self._bytes[at : at + scaled(page_bytes)])

    def peek(self, offset: int, page_bytes: int) -> bytes:
        """As read, by somebody who was given nothing: what is not there reads as zeros."""
        at = (offset - DATA_OFFSET_BYTES) // SCALE
        return bytes(self._bytes[at : at + scaled(page_bytes)])

    def write(self, offset: int, content: bytes, begin: int = 0) -> None:
        """content[begin:] goes where it lies in the page at `offset`."""
        at = self._at(offset, len(content) * SCALE) + begin
        if not self.retired:
            part = content[begin:]
            self._bytes[at : at + len(part)] = part

    def _at(self, offset: int, page_bytes: int) -> int:
        place = offset - DATA_OFFSET_BYTES
        extent = place // self.extent_bytes
        if not self.retired and extent not in self.ready:
            raise Broken("budgets", f"offset {offset} lies in extent {extent}, which is not there")
        if (place % self.extent_bytes) + page_bytes > self.extent_bytes + SCALE:
            raise Broken("budgets", f"a page at offset {offset} crosses its extent's end")
        return place // SCALE
