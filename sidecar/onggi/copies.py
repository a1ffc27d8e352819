"""Copies between arena and memory: as few as possible, each as long as possible.

ctypes.memmove was chosen by measurement, on a busy two-core machine: 1.5 us a call and the GIL
released while it runs. A memoryview slice assignment costs 1.1 us and keeps the GIL (a background
store would stop the engine's thread for as long as it copies), torch's copy_ costs 7 us a call and
is no faster above 1 MiB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from operator import sub

from onggi_core.arena_header import COPY_MAX_BYTES

Piece = tuple[int, int, int]
"""(offset in the arena file, address in this process, bytes)."""

copy = ctypes.memmove
"""copy(to address, from address, bytes)."""


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """The same copies with neighbours joined: pieces that go on where the one before ended, on
    both sides, become one of up to COPY_MAX_BYTES."""
    joined: list[Piece] = []
    offset = address = length = 0
    for piece in pieces:
        if (
            length
            and piece[0] == offset + length
            and piece[1] == address + length
            and length + piece[2] <= COPY_MAX_BYTES
        ):
            length += piece[2]
            continue
        if length:
            joined.append((offset, address, length))
        offset, address, length = piece
    if length:
        joined.append((offset, address, length))
    return joined


def cut(pieces: Iterable[Piece], most: int) -> list[Piece]:
    """The same copies, none of them longer than `most` bytes."""
    return [
        (offset + at, address + at, min(most, length - at))
        for offset, address, length in pieces
        for at in range(0, length, most)
    ]


def runs(offsets: Sequence[int], addresses: Sequence[int], page_bytes: int) -> list[Piece]:
    """The copies for pages of one size, neighbours joined as in merged(), at a third of its cost a
    page."""
    steps = zip(map(sub, offsets[1:], offsets), map(sub, addresses[1:], addresses), strict=True)
    usual = (page_bytes, page_bytes)
    ends = [number for number, step in enumerate(steps, 1) if step != usual]
    most = max(1, COPY_MAX_BYTES // page_bytes)
    pieces: list[Piece] = []
    begin = 0
    for end in (*ends, len(offsets)):
        for first in range(begin, end, most):
            length = (min(end, first + most) - first) * page_bytes
            pieces.append((offsets[first], addresses[first], length))
        begin = end
    return pieces
