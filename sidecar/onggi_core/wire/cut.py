"""A byte stream cut into frames, whatever pieces it arrives in."""

from __future__ import annotations

from typing import NamedTuple

from onggi_core.wire.frame import HEADER, HEADER_BYTES, PAYLOAD_MAX_BYTES, Status, WireError


class Frame(NamedTuple):
    op: int
    status: int
    request_id: int
    payload: bytes


class Cutter:
    """Feed it what was read; it hands back the whole frames and keeps the rest.

    Holds at most one frame's worth of bytes beyond what was fed, because a header that announces
    more than PAYLOAD_MAX_BYTES raises WireError before any of it is awaited.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Whole frames completed by `data`, in order. Raises WireError (TOO_LARGE)."""
        buffer = self._rest + data if self._rest else data
        frames: list[Frame] = []
        at, end = 0, len(buffer)
        while end - at >= HEADER_BYTES:
            length, op, status, request_id = HEADER.unpack_from(buffer, at)
            if length > PAYLOAD_MAX_BYTES:
                raise WireError(
                    Status.TOO_LARGE,
                    f"frame announces {length} bytes; the limit is {PAYLOAD_MAX_BYTES}",
                )
            start = at + HEADER_BYTES
            if end - start < length:
                break
            frames.append(Frame(op, status, request_id, buffer[start : start + length]))
            at = start + length
        self._rest = buffer[at:]
        return frames

    @property
    def waiting(self) -> bool:
        """True inside a frame: a stream that ends now was cut."""
        return bool(self._rest)
