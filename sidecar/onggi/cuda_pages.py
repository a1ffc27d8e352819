"""Pages of CUDA memory: pinned registration of the arena, side streams, events.

Written for a GPU and **never run on one so far**: the tests drive it with a stand-in for torch that
records streams, events and registrations in order, which shows the order of the calls and nothing
about the driver. Treat it as unproven until a machine with a GPU has run tests marked `gpu`.

Why extents are registered one by one, when first used: registering makes every page resident, and
the agent offers an extent only after it has touched all of it. Registering the whole file at once
would make the engine pay for memory that the agent has not touched yet. A registration holds on to
the memory it found, so it is undone when the extent's turn changes: the agent gave that memory
back, and what comes there later is other memory, which DMA by the old one would never reach.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from onggi.arena import Arena

_CUDA_SUCCESS: Final = 0
_ALREADY_REGISTERED: Final = 712
"""cudaErrorHostMemoryAlreadyRegistered: another copier of this process was first."""


class RunLike(Protocol):
    """See onggi.connectors.vllm.layout.Run; here only sizes matter, not addresses."""

    @property
    def nbytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def layer(self) -> int: ...


class CudaCopier:
    """Moves whole pages between device blocks and the arena. copy_in may run on another thread
    than the engine's; the two directions use a stream each."""

    def __init__(self, views: Sequence[Any], runs: Sequence[RunLike], torch: Any = None) -> None:
        """views: one for each run, uint8 [blocks, nbytes] on the device (see byte_views). torch:
        the module, for tests."""
        if torch is None:
            import torch as real_torch

            torch = real_torch
        self._torch = torch
        self._views = tuple(views)
        self._runs = tuple(runs)
        self._device = views[0].device
        self._out_stream = torch.cuda.Stream(device=self._device)
        self._in_stream = torch.cuda.Stream(device=self._device)
        self._arena: Arena | None = None
        self._host: Any = None
        self._registered: dict[int, tuple[int, int]] = {}
        """extent -> its turn when it was registered, and the address; 0 where that failed."""
        self._seen_turns = b""
        self._registering = threading.Lock()

    def mark(self) -> Any:
        """An event behind everything the engine's thread has launched. Call it on that thread."""
        event = self._torch.cuda.Event()
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def copy_in(self, arena: Arena, pairs: Iterable[tuple[int, int]], after: Any) -> bool:
        """Device blocks to arena pages; returns when the bytes are in host memory."""
        if not arena.alive:
            return False
        self._copy(arena, pairs, after, self._out_stream, to_host=True)
        return arena.alive

    def copy_out(self, arena: Arena, pairs: Iterable[tuple[int, int]], after: Any) -> bool:
        """Arena pages to device blocks, behind whatever still uses those blocks; returns when the
        bytes are on the device, so that the epoch can be looked at before anybody reads them."""
        self._copy(arena, pairs, after, self._in_stream, to_host=False)
        return arena.alive

    def load(self, arena: Arena, pairs: Iterable[tuple[int, int]], after: Any) -> CudaLoad:
        """As copy_out without waiting: layer by layer, an event behind each."""
        if not arena.alive:
            return CudaLoad(self, arena, {})
        pairs = tuple(pairs)
        host = self._mapped(arena, [at for _, at in pairs])
        layers = sorted({run.layer for run in self._runs})
        events = {}
        with self._torch.cuda.stream(self._in_stream):
            self._in_stream.wait_event(after)
            for layer in layers:
                self._launch(host, pairs, layer, to_host=False)
                events[layer] = self._torch.cuda.Event()
                events[layer].record(self._in_stream)
        return CudaLoad(self, arena, events)

    def hold_engine(self, event: Any) -> None:
        """What the engine launches from here on runs behind the event; nobody waits here."""
        self._torch.cuda.current_stream(self._device).wait_event(event)

    def _copy(
        self,
        arena: Arena,
        pairs: Iterable[tuple[int, int]],
        after: Any,
        stream: Any,
        *,
        to_host: bool,
    ) -> None:
        pairs = tuple(pairs)
        host = self._mapped(arena, [at for _, at in pairs])
        with self._torch.cuda.stream(stream):
            stream.wait_event(after)
            self._launch(host, pairs, None, to_host=to_host)
            done = self._torch.cuda.Event()
            done.record(stream)
        done.synchronize()

    def _launch(
        self, host: Any, pairs: Sequence[tuple[int, int]], layer: int | None, *, to_host: bool
    ) -> None:
        """Copies of all layers or of one, on the stream that is current."""
        parts = [
            (run, view)
            for run, view in zip(self._runs, self._views, strict=True)
            if layer is None or run.layer == layer
        ]
        for block, at in pairs:
            for run, view in parts:
                page = host[at + run.offset : at + run.offset + run.nbytes]
                if to_host:
                    page.copy_(view[block], non_blocking=True)
                else:
                    view[block].copy_(page, non_blocking=True)

    def _mapped(self, arena: Arena, offsets: Sequence[int]) -> Any:
        """The arena as one uint8 tensor, the extents behind `offsets` registered for DMA."""
        if arena is not self._arena:
            self.forget_arena()
            self._arena = arena
            self._host = self._torch.frombuffer(arena.whole(), dtype=self._torch.uint8)
        cudart = self._torch.cuda.cudart()
        with self._registering:
            self._let_go_of_old(arena, cudart)
            for extent in sorted({arena.extent_of(at) for at in offsets} - self._registered.keys()):
                begin, length = arena.extent_range(extent)
                turn = arena.turn_of(extent)
                code = int(cudart.cudaHostRegister(arena.address + begin, length, 0))
                # Where it fails copies still work, through the driver's own pinned buffer, slower.
                registered = code in (_CUDA_SUCCESS, _ALREADY_REGISTERED)
                self._registered[extent] = turn, arena.address + begin if registered else 0
        return self._host

    def _let_go_of_old(self, arena: Arena, cudart: Any) -> None:
        """Undo the registrations of extents that were given back. No copy uses them: the agent
        gives back an extent only when nobody holds a page of it."""
        if (turns := arena.turns()) == self._seen_turns:
            return
        self._seen_turns = turns
        for extent, (turn, address) in tuple(self._registered.items()):
            if arena.turn_of(extent) != turn:
                del self._registered[extent]
                if address:
                    cudart.cudaHostUnregister(address)

    def forget_arena(self) -> None:
        """Undo the registrations of an arena that is gone, once no copy uses it."""
        if self._arena is None:
            return
        self._in_stream.synchronize()
        self._out_stream.synchronize()
        cudart = self._torch.cuda.cudart()
        for _, address in self._registered.values():
            if address:
                cudart.cudaHostUnregister(address)
        self._registered = {}
        self._seen_turns = b""
        self._host = None
        self._arena = None


class CudaLoad:
    """A load under way on the copier's stream. See onggi.connectors.vllm.copier.Load."""

    def __init__(self, copier: CudaCopier, arena: Arena, events: Mapping[int, Any]) -> None:
        """events: layer -> the event behind its last copy. Empty: the arena was gone."""
        self._copier = copier
        self._arena = arena
        self._events = events

    def help(self) -> None:
        """Nothing: the device's copy engine needs none."""

    def wait(self, layer: int) -> None:
        """Hold the engine's stream, and no thread, until the layer is there."""
        event = self._events.get(layer)
        if event is not None:
            self._copier.hold_engine(event)

    def end(self) -> bool:
        """Wait for the last copy, so that the epoch is looked at after the last byte was read."""
        for event in self._events.values():
            event.synchronize()
        return bool(self._events) and self._arena.alive


def byte_views(tensors: Sequence[Any], runs: Sequence[Any], blocks: int, torch: Any) -> list[Any]:
    """uint8 [blocks, nbytes] views of device tensors, one for each run: the tensor whose memory
    holds the run's first byte is found by address. Raises ValueError if none does."""
    views = []
    for run in runs:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            at = run.address - storage.data_ptr()
            if 0 <= at < storage.nbytes():
                flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                views.append(flat.set_(storage, at, (blocks, run.nbytes), (run.stride, 1)))
                break
        else:
            raise ValueError(f"no tensor holds address {run.address:#x}")
    return views
