"""Pieces on their way to the device: one is brought while another is computed.

Two places, used in turn. On the CPU a thread copies from the agent's memory into the place itself.
On a CUDA device the thread copies into pinned memory, and a stream of its own from there to the
place, which begins when what was computed from the place before is over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import torch

Fill = Callable[[Any], int]
"""Writes into a place in host memory; how many of its first tokens it wrote to."""


class Lane(Protocol):
    """Brings pieces into two places that it uses in turn."""

    @property
    def busy_s(self) -> float:
        """Time in which something was being brought."""
        ...

    @property
    def waited_s(self) -> float:
        """Time in which computing waited for it: what it did not hide."""
        ...

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


class _Brought(NamedTuple):
    """A piece in its place, as far as the device's stream has got."""

    rows: Any
    begun: Any
    arrived: Any
    filled_s: float
    """In which the thread filled the pinned place."""


class CudaLane:
    """Where the device is a GPU. places: two tensors [batch, tokens, width] on it.

    The stream of its own waits for what was computed from a place before it writes there, and
    whoever computes waits for what it wrote; the thread writes to a pinned place when the device
    has read what was there.
    """

    def __init__(self, places: tuple[Any, Any]) -> None:
        self._places = places
        self._device = places[0].device
        self._pinned = [_pinned(place) for place in places]
        self._left = [torch.cuda.Event(), torch.cuda.Event()]
        """Of each pinned place: when the device has read it."""
        self._stream = torch.cuda.Stream(self._device)
        for place in places:
            # whoever forgets to close: its memory is not given to others while a copy goes there
            place.record_stream(self._stream)
        self._turn = 0
        self._thread = ThreadPoolExecutor(1, "onggi-lane")
        self._filled_s = 0.0
        self._moved, self._stalled = Spans(), Spans()

    @property
    def busy_s(self) -> float:
        return self._filled_s + self._moved.settled_s()

    @property
    def waited_s(self) -> float:
        """Of the device: from when it had nothing else to do until the piece was there."""
        return self._stalled.settled_s()

    def begin(self, fill: Fill) -> Callable[[], Any]:
        turn, self._turn = self._turn, 1 - self._turn
        computed = _mark(torch.cuda.current_stream(self._device))
        coming = self._thread.submit(self._run, fill, turn, computed)
        return lambda: self._wait(coming)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._stream.synchronize()

    def _run(self, fill: Fill, turn: int, computed: Any) -> _Brought:
        pinned, place = self._pinned[turn], self._places[turn]
        self._left[turn].synchronize()
        started = time.perf_counter()
        tokens = fill(pinned)
        filled_s = time.perf_counter() - started
        self._stream.wait_event(computed)
        begun = _mark(self._stream)
        with torch.cuda.stream(self._stream):
            # one by one, since each is contiguous: of all at once torch would make copies on both
            # sides first, and wait for them
            for into, rows in zip(place, pinned, strict=True):
                into[:tokens].copy_(rows[:tokens], non_blocking=True)
        self._left[turn] = arrived = _mark(self._stream)
        return _Brought(place[:, :tokens], begun, arrived, filled_s)

    def _wait(self, coming: Future[_Brought]) -> Any:
        stream = torch.cuda.current_stream(self._device)
        idle = _mark(stream)
        brought = coming.result()
        stream.wait_event(brought.arrived)
        self._stalled.add(idle, _mark(stream))
        self._moved.add(brought.begun, brought.arrived)
        self._filled_s += brought.filled_s
        return brought.rows


class Spans:
    """Times between pairs of events, summed when both have come to pass."""

    def __init__(self) -> None:
        self._sum_s = 0.0
        self._open: deque[tuple[Any, Any]] = deque()

    def add(self, begin: Any, end: Any) -> None:
        self._open.append((begin, end))
        self.settled_s()

    def settled_s(self) -> float:
        """Of those that are over by now."""
        while self._open and self._open[0][1].query():
            begin, end = self._open.popleft()
            self._sum_s += begin.elapsed_time(end) / 1000
        return self._sum_s


def _mark(stream: Any) -> Any:
    """An event that comes when the stream has done all that it was given so far."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


def _pinned(place: Any) -> Any:
    with torch.inference_mode(mode=False):  # else the thread might not write to it
        return torch.empty(place.shape, dtype=place.dtype, device="cpu", pin_memory=True)


def lane_for(places: tuple[Any, Any]) -> Lane:
    """The lane of the device that the places are on."""
    return CudaLane(places) if places[0].device.type == "cuda" else HostLane(places)
