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
    """Give it what was read with `add`, take whole frames with `next`; `feed` is both.

    Holds what was added and not yet taken, and never awaits more than one frame: a header that
    announces more than PAYLOAD_MAX_BYTES raises WireError before any of it is awaited.
    """

    __slots__ = ("_at", "_buffer")

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self._at = 0

    def add(self, data: bytes) -> None:
        """Append to the stream. What is left of an earlier piece is grown in place, so that a frame
        that comes a byte at a time is not copied for each of them."""
        if self._at >= len(self._buffer):
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            del self._buffer[: self._at]
            self._buffer += data
        else:
            self._buffer = bytearray(self._buffer[self._at :]) + data
        self._at = 0

    def next(self) -> Frame | None:
        """The next whole frame, or None. Raises WireError (TOO_LARGE)."""
        buffer, at = self._buffer, self._at
        if len(buffer) - at < HEADER_BYTES:
            return None
        length, op, status, request_id = HEADER.unpack_from(buffer, at)
        if length > PAYLOAD_MAX_BYTES:
            raise WireError(
                Status.TOO_LARGE,
                f"frame announces {length} bytes; the limit is {PAYLOAD_MAX_BYTES}",
            )
        start = at + HEADER_BYTES
        end = start + length
        if len(buffer) < end:
            return None
        self._at = end
        if isinstance(buffer, bytearray):
            return Frame(op, status, request_id, bytes(memoryview(buffer)[start:end]))
        return Frame(op, status, request_id, buffer[start:end])

    def feed(self, data: bytes) -> list[Frame]:
        """Whole frames completed by `data`, in order. Raises WireError (TOO_LARGE)."""
        if self._at >= len(self._buffer) and len(data) >= HEADER_BYTES:
            length, op, status, request_id = HEADER.unpack_from(data)
            if HEADER_BYTES + length == len(data) and length <= PAYLOAD_MAX_BYTES:
                return [Frame(op, status, request_id, data[HEADER_BYTES:])]  # as most answers come
        self.add(data)
        frames: list[Frame] = []
        while self._at < len(self._buffer) and (got := self.next()) is not None:
            frames.append(got)
        return frames

    @property
    def waiting(self) -> bool:
        """True inside a frame: a stream that ends now was cut."""
        return self._at < len(self._buffer)

    @property
    def awaited_bytes(self) -> int:
        """Size of the frame whose header is next, header included; 0 while there is no header."""
        if len(self._buffer) - self._at < HEADER_BYTES:
            return 0
        length: int = HEADER.unpack_from(self._buffer, self._at)[0]
        return HEADER_BYTES + length
