"""Names of a context's blocks: a number where it is kept in lists, a key where the agent sees it.

A number is 8 bytes where a key is an object of 49: a million tokens of 32 layers in blocks of 128
are 262,144 names.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Sequence
from typing import Final

from onggi_core.identity import DIGEST_BYTES

NONCE_BYTES: Final = 16
_ORIGIN_SHIFT: Final = 48
"""2**48 blocks of 2**16 contexts that one was made from."""

_NUMBER: Final = (1 << _ORIGIN_SHIFT) - 1


class Names:
    """Of one context. origins: nonces of contexts whose blocks it has, its own first."""

    def __init__(self, nonce: bytes) -> None:
        self.origins = [nonce]
        self._next = 0
        self._mine_from = 0

    def new(self, count: int) -> range:
        """So many numbers that nobody has."""
        first = self._next
        self._next += count
        return range(first, first + count)

    def adopt(self, origins: Sequence[bytes], row: array[int]) -> array[int]:
        """The numbers here of another context's blocks, whose numbers there refer to `origins`."""
        for nonce in origins:
            if nonce not in self.origins:
                self.origins.append(nonce)
        there = [self.origins.index(nonce) << _ORIGIN_SHIFT for nonce in origins]
        return array("Q", [there[n >> _ORIGIN_SHIFT] | n & _NUMBER for n in row])

    def keep_all(self) -> None:
        """What was made so far is no more this context's alone: it was saved."""
        self._mine_from = self._next

    def mine(self, number: int) -> bool:
        """Whether the block ends with this context: it made it, and nobody else was told."""
        return self._mine_from <= number <= _NUMBER

    def key(self, number: int) -> bytes:
        nonce = self.origins[number >> _ORIGIN_SHIFT]
        own = struct.pack("<Q", number & _NUMBER)
        return hashlib.sha256(nonce + own).digest()[:DIGEST_BYTES]

    def keys(self, numbers: Sequence[int]) -> list[bytes]:
        return [self.key(number) for number in numbers]
