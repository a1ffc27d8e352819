"""Copies between device and host memory, and in what order.

On a CUDA device all that touches the device's tier runs on one stream of our own, which waits for
what the caller's stream has launched and which the caller's stream waits for: so a slot is never
written to while a copy from it is under way. Written for a GPU and not run on one so far.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


def new_bytes(*shape: int, **kind: Any) -> torch.Tensor:
    """That may be written to by any thread at any time, also where a caller whose put or get this
    is made for is in torch's inference mode."""
    with torch.inference_mode(mode=False):
        return torch.empty(shape, dtype=torch.uint8, **kind)


class Lanes:
    """For one device. In plain memory everything has happened when a call returns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device=device) if device.type == "cuda" else None

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Around copies on the device."""
        if self._stream is None:
            yield
            return
        caller = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            yield
        caller.wait_stream(self._stream)

    def new_row(self, nbytes: int) -> torch.Tensor:
        return new_bytes(nbytes, device=self.device)

    def new_host_row(self, nbytes: int) -> torch.Tensor:
        """Torch keeps pinned memory for the next one that asks."""
        return new_bytes(nbytes, device="cpu", pin_memory=self._stream is not None)

    def copy_of(self, row: torch.Tensor, nbytes: int) -> torch.Tensor:
        """Of a row on the device, its first bytes."""
        out = self.new_row(nbytes)
        with self.work():
            out.copy_(row[:nbytes], non_blocking=True)
        return out

    def to_host(self, row: torch.Tensor) -> torch.Tensor:
        """The same bytes in host memory, there when this returns."""
        if self._stream is None:
            return row
        host = self.new_host_row(row.numel())
        with self.work():
            host.copy_(row, non_blocking=True)
        self._stream.synchronize()
        return host

    def to_device(self, host: torch.Tensor) -> torch.Tensor:
        """The same bytes on the device, there when this returns."""
        if self._stream is None:
            return host
        row = self.new_row(host.numel())
        with self.work():
            row.copy_(host, non_blocking=True)
        self._stream.synchronize()
        return row
