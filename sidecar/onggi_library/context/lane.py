"""Pieces on their way to the device: one is brought while another is computed.

Two places, used in turn. On the CPU a thread copies from the agent's memory into the place itself.
On a CUDA device the thread copies into pinned memory, and a stream of its own from there to the
place, which begins when what was computed from the place before is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch

Fill = Callable[[Any], int]
"""Writes into a place in host memory; how many of its first tokens it wrote to."""


class Lane(Protocol):
    """Brings pieces into two places that it uses in turn."""

    busy_s: float
    """Time in which something was being brought."""
    waited_s: float
    """Time in which somebody waited for it: what computing did not hide."""

    def begin(self, fill: Fill) -> Callable[[], Any]:
        """Begin to fill the place that was not begun last. The answer waits and gives it: [batch,
        tokens, width] on the device, valid until the next but one is begun. It raises what `fill`
        raised."""
        ...

    def close(self) -> None: ...


class HostLane:
    """Where the device is the CPU. places: two tensors [batch, tokens, width]."""

    def __init__(self, places: tuple[Any, Any]) -> None:
        self.busy_s = 0.0
        self.waited_s = 0.0
        self._places = places
        self._turn = 0
        self._thread = ThreadPoolExecutor(1, "onggi-lane")

    def begin(self, fill: Fill) -> Callable[[], Any]:
        place = self._places[self._turn]
        self._turn = 1 - self._turn
        # one thread takes them in order: one that nobody waited for is over before its place is
        # filled again
        coming = self._thread.submit(self._run, fill, place)
        return lambda: self._wait(coming)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _run(self, fill: Fill, place: Any) -> Any:
        begun = time.perf_counter()
        tokens = fill(place)
        self.busy_s += time.perf_counter() - begun
        return place[:, :tokens]

    def _wait(self, coming: Future[Any]) -> Any:
        begun = time.perf_counter()
        try:
            return coming.result()
        finally:
            self.waited_s += time.perf_counter() - begun


class CudaLane:
    """Where the device is a GPU. places: two tensors [batch, tokens, width] on it."""

    def __init__(self, places: tuple[Any, Any]) -> None:
        self.busy_s = 0.0
        self.waited_s = 0.0
        self._places = places
        self._pinned = [
            torch.empty(place.shape, dtype=place.dtype).pin_memory() for place in places
        ]
        self._left = [torch.cuda.Event() for _ in places]
        """Of each pinned place: when the device has read it."""
        self._stream = torch.cuda.Stream(places[0].device)
        self._turn = 0
        self._thread = ThreadPoolExecutor(1, "onggi-lane")

    def begin(self, fill: Fill) -> Callable[[], Any]:
        turn, self._turn = self._turn, 1 - self._turn
        computed = torch.cuda.Event()
        computed.record(torch.cuda.current_stream(self._places[turn].device))
        coming = self._thread.submit(self._run, fill, turn, computed)
        return lambda: self._wait(coming)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._stream.synchronize()

    def _run(self, fill: Fill, turn: int, computed: Any) -> tuple[Any, Any]:
        pinned, place, left = self._pinned[turn], self._places[turn], self._left[turn]
        left.synchronize()
        begun = time.perf_counter()
        tokens = fill(pinned)
        arrived = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(computed)
            place[:, :tokens].copy_(pinned[:, :tokens], non_blocking=True)
            left.record(self._stream)
            arrived.record(self._stream)
        self.busy_s += time.perf_counter() - begun
        return place[:, :tokens], arrived

    def _wait(self, coming: Future[tuple[Any, Any]]) -> Any:
        begun = time.perf_counter()
        try:
            rows, arrived = coming.result()
        finally:
            self.waited_s += time.perf_counter() - begun
        torch.cuda.current_stream(rows.device).wait_event(arrived)
        return rows


def lane_for(places: tuple[Any, Any]) -> Lane:
    """The lane of the device that the places are on."""
    return CudaLane(places) if places[0].device.type == "cuda" else HostLane(places)
