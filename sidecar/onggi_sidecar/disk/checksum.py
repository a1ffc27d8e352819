"""What proves a page: one call a page, over its bytes and what they are."""

import struct
from typing import Final

import xxhash

from onggi_core.wire.requests import SpaceSpec

_DESCRIBED: Final = struct.Struct("<16sQI16s")


def page_checksum(space: SpaceSpec, key: bytes, page: memoryview) -> bytes:
    """xxh3-128 of the page's bytes, seeded with xxh3-64 of what the page is.

    The description is part of it: right bytes under a wrong layout, length or key are as wrong as
    flipped ones (Mesh-LLM/mesh-llm#1228). As a seed it costs no second pass and no state object.
    page: [page_bytes] uint8, exactly the block's length.
    """
    described = _DESCRIBED.pack(space.fingerprint, space.page_bytes, space.block_tokens, key)
    return xxhash.xxh3_128_digest(page, xxhash.xxh3_64_intdigest(described))
