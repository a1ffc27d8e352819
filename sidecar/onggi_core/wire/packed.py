"""Requests' bytes from keys that are packed already (fields.keys_to), for a client in a hurry."""

from __future__ import annotations

import struct
from typing import Final

from onggi_core.identity import DIGEST_BYTES
from onggi_core.wire.fields import COUNT_BYTES
from onggi_core.wire.frame import HEADER_BYTES, Op
from onggi_core.wire.requests import FILL, PREPARE, WAIT

_FILL_FRAME: Final = struct.Struct("<IHHQQHI16sI")
"""A frame's header, StoreFill's fields, and how many keys follow."""
_FILL_BYTES: Final = FILL.size + COUNT_BYTES
assert _FILL_FRAME.size == HEADER_BYTES + _FILL_BYTES


def pack_load(wait_ms: int, keys: bytes) -> bytes:
    """LoadPrepare's bytes."""
    return WAIT.pack(wait_ms) + keys


def pack_store(space: int, parent: bytes, keys: bytes) -> bytes:
    """StorePrepare's bytes."""
    return PREPARE.pack(space, parent) + keys


def pack_fill(ticket: int, space: int, wanted: int, parent: bytes, keys: bytes) -> bytes:
    """StoreFill's bytes."""
    return FILL.pack(ticket, space, wanted, parent) + keys


def fill_frame(
    request_id: int, ticket: int, space: int, wanted: int, parent: bytes, keys: bytes
) -> bytes:
    """The whole frame of a StoreFill. keys: 16 bytes each and no count, at most KEYS_MAX."""
    nbytes, count = _FILL_BYTES + len(keys), len(keys) // DIGEST_BYTES
    head = _FILL_FRAME.pack(
        nbytes, Op.STORE_FILL, 0, request_id, ticket, space, wanted, parent, count
    )
    return head + keys
