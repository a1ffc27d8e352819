"""Which keys a prompt may begin with that any tier holds: one look tells that nothing is there.

A prompt that nobody has kept is missed at its first block, so the first blocks of chains say it
all, and they are few. Each is counted in one byte, found by its key alone, which is a hash: what is
0 no known chain begins with, in no space; what is not may be another's. A byte that has come to
its end stays there.
"""

from __future__ import annotations

from typing import Final

from onggi_core.identity import DIGEST_BYTES

KEY_PART: Final = slice(0, 4)
"""The part of a key that names its byte."""
FULL: Final = 255


def place(key: bytes, count: int) -> int:
    """Which of the `count` bytes is a key's; a power of two."""
    return int.from_bytes(key[KEY_PART], "little") & (count - 1)


class Beginnings:
    """The agent's side. counts: zeros, a power of two of them, which readers may see. Blocks are
    the index's numbers, and keys all of theirs, 16 bytes each."""

    def __init__(self, counts: memoryview) -> None:
        self._counts = counts
        self._told = bytearray()
        """1 by block: it is counted."""

    def add(self, block: int, keys: bytes | bytearray) -> None:
        """A block that follows none is known from now on, or was before."""
        told = self._told
        if block >= len(told):
            told += bytes(block + 1 - len(told) + len(told) // 4)
        if told[block]:
            return
        told[block] = 1
        at = self._place(block, keys)
        if self._counts[at] < FULL:
            self._counts[at] += 1

    def remove(self, blocks: range, keys: bytes | bytearray) -> None:
        """These are not known any more; most of them were never added."""
        if not any(self._told[blocks.start : blocks.stop]):
            return
        for block in blocks:
            if block < len(self._told) and self._told[block]:
                self._told[block] = 0
                at = self._place(block, keys)
                if self._counts[at] < FULL:
                    self._counts[at] -= 1

    def _place(self, block: int, keys: bytes | bytearray) -> int:
        begin = block * DIGEST_BYTES
        return place(bytes(keys[begin : begin + DIGEST_BYTES]), len(self._counts))
