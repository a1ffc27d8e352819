"""What nobody could be faster than: computing alone, a copy alone, reading a disk alone.

Each is a contestant of bench.timing: called with a round's number, answers seconds.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch

from bench.library.scenarios import MIB, Scenario, Shape
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.tiles import Asking, contribution
from onggi_library.attention.visible import Visibility
from onggi_sidecar.disk.schedule import THREADS

COPY_BYTES: Final = 64 * MIB
"""A round's, walked through WALK times as much: no cache of a processor holds it."""
WALK: Final = 8
READ_BYTES: Final = MIB
"""Of one read; a round reads COPY_BYTES of a file WALK times as long, THREADS reads at a time."""


class Computing:
    """Attention of one token to all of it, on the device. Raises RuntimeError where it does not fit
    there."""

    def __init__(self, scenario: Scenario, shape: Shape, device: str) -> None:
        size = (scenario.batch, shape.kv_heads, scenario.tokens, shape.head_size)
        kind = {"dtype": getattr(torch, shape.dtype), "device": device}
        span = Span(0, scenario.tokens)
        self._pieces = [
            Piece(span, torch.empty(size, **kind).normal_(), torch.empty(size, **kind).normal_())
            for _ in range(shape.layers)
        ]
        queries = torch.randn(scenario.batch, shape.heads, 1, shape.head_size, **kind)
        at = Span(scenario.tokens - 1, 1)
        self._asking = Asking(
            queries, at, shape.head_size, shape.head_size**-0.5, Visibility(), None, None
        )

    def __call__(self, _number: int) -> None:
        for piece in self._pieces:
            contribution(self._asking, piece)
        if self._asking.queries.device.type == "cuda":
            torch.cuda.synchronize()


class Copying:
    """From host memory to the device, by one thread and no more."""

    def __init__(self, device: str) -> None:
        pinned = device == "cuda"
        self._from = torch.ones(WALK * COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
        self._to = torch.ones(WALK * COPY_BYTES, dtype=torch.uint8, device=device)

    def __call__(self, number: int) -> None:
        begin = number % WALK * COPY_BYTES
        there = self._to[begin : begin + COPY_BYTES]
        there.copy_(self._from[begin : begin + COPY_BYTES], non_blocking=True)
        if there.device.type == "cuda":
            torch.cuda.synchronize()


class Reading:
    """From the disk that a folder is on, past the page cache, with as many threads as an agent."""

    def __init__(self, folder: Path) -> None:
        path = folder / "limit"
        with path.open("wb") as file:
            for _ in range(WALK):
                file.write(os.urandom(COPY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._buffers = [mmap.mmap(-1, READ_BYTES) for _ in range(COPY_BYTES // READ_BYTES)]
        self._threads = ThreadPoolExecutor(THREADS)

    def __call__(self, number: int) -> float:
        first = number % WALK * COPY_BYTES
        offsets = range(first, first + COPY_BYTES, READ_BYTES)
        begin_s = time.perf_counter()
        read = sum(self._threads.map(self._read, self._buffers, offsets))
        took_s = time.perf_counter() - begin_s
        if read != COPY_BYTES:
            raise OSError(f"{read} of {COPY_BYTES} bytes were read")
        return took_s

    def _read(self, buffer: mmap.mmap, offset: int) -> int:
        return os.preadv(self._file, [buffer], offset)

    def close(self) -> None:
        self._threads.shutdown()
        os.close(self._file)


def seconds_for(nbytes: float, samples: Sequence[float], middle: Any) -> float:
    """How long so many bytes take, at the rate of the rounds. middle: of samples."""
    return nbytes * float(middle(samples)) / COPY_BYTES
