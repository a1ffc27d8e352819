"""Frames: a 16-byte header and a payload, little endian, many in flight on one stream."""

from __future__ import annotations

import enum
import struct
from typing import Final

from onggi_core.errors import OnggiError

MAGIC: Final = b"ONGG"
VERSION: Final = 1
"""Of the protocol. HELLO carries the range a client speaks; the agent picks the highest common."""

HEADER: Final = struct.Struct("<IHHQ")
"""payload bytes, operation, status, request id."""
HEADER_BYTES: Final = HEADER.size

PAYLOAD_MAX_BYTES: Final = 2 * 1024 * 1024
"""Room for KEYS_MAX keys (1 MiB) with their offsets for one rank in the reply (512 KiB)."""
KEYS_MAX: Final = 65_536
"""A million tokens in 16-token blocks: longer than any context served today."""
DISCARD_KEYS_MAX: Final = 4096
"""Keys of one DISCARD: each is looked for by itself, in every space, and nothing is answered
meanwhile. Some milliseconds."""
LOCATE_KEYS_MAX: Final = 1024
"""Keys of one LOCATE: as for a DISCARD, and nobody is in a hurry to know."""
SPACES_MAX: Final = 64
"""Ranks of one engine: 8 hosts of 8."""
OFFSETS_MAX: Final = 131_072
"""Offsets in one reply, blocks times ranks: 1 MiB, half of what a frame may hold."""


class Op(enum.IntEnum):
    """What a frame asks; a reply carries the operation it answers."""

    HELLO = 1
    LOOKUP = 2
    PREFETCH = 3
    STORE_PREPARE = 4
    STORE_COMPLETE = 5
    LOAD_PREPARE = 6
    LOAD_COMPLETE = 7
    STATS = 8
    LOADED = 9
    STORE_FILL = 10
    DISCARD = 11
    MISSED = 12
    LOCATE = 13


class Status(enum.IntEnum):
    """How a request went. Anything but OK has a sentence as its payload."""

    OK = 0
    BAD_VERSION = 1
    BAD_FRAME = 2
    TOO_LARGE = 3
    HELLO_FIRST = 4
    BAD_REQUEST = 5
    UNKNOWN_TICKET = 6
    TOO_MANY = 7
    STOPPING = 8


FATAL: Final = frozenset(
    {Status.BAD_VERSION, Status.BAD_FRAME, Status.TOO_LARGE, Status.HELLO_FIRST}
)
"""After one of these the stream cannot be trusted, so the agent answers and closes it."""


class WireError(OnggiError):
    """Bytes that break the protocol. The sentence goes to the peer; `status` says how bad it is."""

    def __init__(self, status: Status, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def frame(op: int, status: int, request_id: int, payload: bytes) -> bytes:
    """One frame ready to send. The payload is within PAYLOAD_MAX_BYTES."""
    if len(payload) > PAYLOAD_MAX_BYTES:
        raise WireError(
            Status.TOO_LARGE,
            f"payload is {len(payload)} bytes; the limit is {PAYLOAD_MAX_BYTES}",
        )
    return HEADER.pack(len(payload), op, status, request_id) + payload


def refusal(op: int, status: Status, request_id: int, sentence: str) -> bytes:
    """A frame that says no, and why."""
    return frame(op, status, request_id, sentence.encode()[:4096])
