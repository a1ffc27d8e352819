"""What pages hold here: a pattern made from who the block is and which store wrote it.

One byte stands for SCALE bytes of a real page, so a world of megabytes is cheap to copy and still
every part of a page can be wrong by itself.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final

from onggi_core.identity import ROOT, block_key
from onggi_core.wire.requests import SpaceSpec

SCALE: Final = 256
CHECKSUM_BYTES: Final = 16


def scaled(real_bytes: int) -> int:
    return -(-real_bytes // SCALE)


def pattern(space: SpaceSpec, key: bytes, generation: int) -> bytes:
    """The bytes a client writes for one block: never the same for another block or store."""
    size = scaled(space.page_bytes)
    name = space.fingerprint + key + generation.to_bytes(8, "big")
    once = blake2b(name, digest_size=min(size, 64)).digest()
    return (once * (size // len(once) + 1))[:size]


def checksum(space: SpaceSpec, key: bytes, content: bytes) -> bytes:
    """As the disk tier's: over what the page is, then its bytes."""
    said = space.fingerprint + space.page_bytes.to_bytes(8, "big") + key
    return blake2b(said + content, digest_size=CHECKSUM_BYTES).digest()


def spec(name: str, page_bytes: int, block_tokens: int) -> SpaceSpec:
    return SpaceSpec(block_key(ROOT, name.encode()), page_bytes, block_tokens)


FLEETS: Final = (
    (spec("a/0", 4096, 16), spec("a/1", 4096, 16)),
    (spec("b/0", 4097, 256),),
    (spec("c/0", 3000, 512), spec("c/1", 3000, 512), spec("c/2", 3000, 512)),
    (spec("d/0", 12288, 128),),
)
"""Engines by their ranks: pages of one, two and three slots, of odd and of even length; blocks of
few tokens, whose prompts here are one segment, and of many, whose segments are a few blocks."""


def prompts(rng: Random) -> list[tuple[bytes, ...]]:
    """Chains of keys that share beginnings, as prompts do."""
    found: list[tuple[bytes, ...]] = []
    for number in range(12):
        stem = list(rng.choice(found)[: rng.randint(1, 12)]) if number >= 3 else []
        for at in range(rng.choice((1, 3, 6, 12, 20))):
            above = stem[-1] if stem else ROOT
            stem.append(block_key(above, f"{number}/{at}".encode()))
        found.append(tuple(stem))
    return found
