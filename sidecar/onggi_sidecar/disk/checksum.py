"""What proves a page: one call a page, over its bytes and what they are."""

import struct
from collections.abc import Iterable
from typing import Final

import xxhash

from onggi_core.wire.requests import SpaceSpec

LET_GO_BYTES: Final = 256 * 1024
"""From this size on a page is hashed with the interpreter's lock let go of, by an object: the
digest functions hold it, whatever the length. Below, a page takes less time than threads that hand
the lock to each other."""

_DESCRIBED: Final = struct.Struct("<16sQI")
_HALVES: Final = struct.Struct("<QQ")
_ODD: Final = 0x9E3779B97F4A7C15
"""Multiplying by an odd number loses nothing: no two keys that differ in one half share a seed."""
_MASK: Final = (1 << 64) - 1


def page_checksums(
    space: SpaceSpec, keys: Iterable[bytes], pages: Iterable[memoryview]
) -> list[bytes]:
    """xxh3-128 of each page's bytes, seeded with what the page is.

    The description is part of it: right bytes under a wrong layout, length or key are as wrong as
    flipped ones (Mesh-LLM/mesh-llm#1228). As a seed it costs no second pass. pages: [page_bytes]
    uint8 each, exactly the block's length.
    """
    described = _DESCRIBED.pack(space.fingerprint, space.page_bytes, space.block_tokens)
    of_space = xxhash.xxh3_64_intdigest(described)
    digest = _digest_beside_others if space.page_bytes >= LET_GO_BYTES else xxhash.xxh3_128_digest
    sums = []
    for key, page in zip(keys, pages, strict=True):
        low, high = _HALVES.unpack(key)
        seed = of_space ^ low ^ (high * _ODD & _MASK)
        sums.append(digest(page, seed))
    return sums


def _digest_beside_others(page: memoryview, seed: int) -> bytes:
    return xxhash.xxh3_128(page, seed).digest()
