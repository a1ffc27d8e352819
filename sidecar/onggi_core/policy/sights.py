"""How often a key was seen, for keys that are not here: a doorkeeper of bounded size.

One table of numbers, each key has one slot, and a newer key takes over an older one's. So what was
seen long ago is forgotten at random, sooner in a busy stream, and nothing has to be swept. It
stands in for the ghost lists that ARC and S3-FIFO keep of what they gave up.
"""

from __future__ import annotations

from array import array
from typing import Final

from onggi_core.policy.classes import COUNT_MAX

SLOTS_MIN: Final = 1 << 20
"""2 MiB: small tiers hold few blocks, yet have to know one again after very many others."""
SLOTS_MAX: Final = 1 << 24
"""32 MiB, for tiers of four million blocks and more."""
_SLOTS_A_BLOCK: Final = 4
"""A tier turns over some times before most of what it gave up is forgotten; 8 bytes a block."""

_COUNT_BITS: Final = 4
_COUNT_MASK: Final = (1 << _COUNT_BITS) - 1
_TAG_MASK: Final = (1 << 16) - 1 - _COUNT_MASK
"""12 bits tell a slot's keys apart: of the keys never seen, one in 4096 is taken for another."""


_SPREAD: Final = 0x9E3779B97F4A7C15
"""Odd and without a pattern: what spaces' numbers are multiplied by to tell their keys apart."""


class Sights:
    """Keys are prefix hashes, so their bytes are as good as random."""

    def __init__(self, blocks: int) -> None:
        """blocks: what the tier holds."""
        wanted = min(max(blocks * _SLOTS_A_BLOCK, SLOTS_MIN), SLOTS_MAX)
        slots = 1 << (wanted - 1).bit_length()
        self._mask = slots - 1
        self._table = array("H", [0]) * slots

    def count(self, key: bytes, space: int = 0) -> int:
        """How often the key was seen, up to COUNT_MAX; it is not seen by this."""
        number = int.from_bytes(key[:8], "little") ^ space * _SPREAD
        found = self._table[number & self._mask]
        if found & _TAG_MASK != number >> 48 & _TAG_MASK:
            return 0
        return min(found & _COUNT_MASK, COUNT_MAX)

    def see(self, key: bytes, space: int = 0) -> int:
        """How often the key was seen before, up to COUNT_MAX; from now on once more. A key in one
        space is another than in the next."""
        number = int.from_bytes(key[:8], "little") ^ space * _SPREAD
        slot, tag = number & self._mask, number >> 48 & _TAG_MASK
        found = self._table[slot]
        if found & _TAG_MASK != tag or not found & _COUNT_MASK:
            self._table[slot] = tag | 1
            return 0
        count = found & _COUNT_MASK
        if count <= COUNT_MAX:
            self._table[slot] = found + 1
        return min(count, COUNT_MAX)
