"""Keys of chunks: vLLM's own, made ours.

vLLM names a chunk by the hash of all tokens up to its end (with adapter, pictures, salt and
embeddings), and by the number of its group of layers. What shapes its bytes beside that, the seed
of the hashes included, is the fingerprint's.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Final

from onggi_core.identity import DIGEST_BYTES

GROUP_BYTES: Final = 4
"""At the end of vLLM's key, big-endian."""


def group_of(name: bytes) -> int:
    """The number of the group of layers that a chunk belongs to."""
    return int.from_bytes(name[-GROUP_BYTES:], "big")


class Names:
    """vLLM's keys to ours, and a new life after the engine's caches were reset by hand: nothing
    from before is found then. Renewed by the scheduler's thread while no job runs."""

    def __init__(self) -> None:
        self._life = b""

    def keys(self, names: Sequence[bytes]) -> list[bytes]:
        life = self._life
        return [hashlib.sha256(life + name).digest()[:DIGEST_BYTES] for name in names]

    def renew(self) -> None:
        self._life = uuid.uuid4().bytes
