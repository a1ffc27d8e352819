"""The CUDA copier against a stand-in for torch: which calls, in which order.

This machine has no GPU. What is shown here is our own part: that a copy waits for the engine's
mark, that it is over before the epoch is looked at, and which extents are registered when. Nothing
here says that a driver accepts it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from onggi.cuda_pages import CudaCopier, byte_views

EXTENT = 1 << 20


class FakeArena:
    """The parts of onggi.arena.Arena that are used, over a bytearray."""

    address = 0x10_0000_0000

    def __init__(self, log: list[Any]) -> None:
        self.bytes = bytearray(4 * EXTENT)
        self.log = log
        self.turn = [1, 1, 1, 1]

    @property
    def alive(self) -> bool:
        self.log.append("epoch looked at")
        return True

    def whole(self) -> memoryview:
        return memoryview(self.bytes)

    def turns(self) -> bytes:
        return bytes(self.turn)

    def turn_of(self, extent: int) -> int:
        return self.turn[extent]

    def extent_of(self, offset: int) -> int:
        return offset // EXTENT

    def extent_range(self, extent: int) -> tuple[int, int]:
        return extent * EXTENT, EXTENT


class Bytes:
    """A uint8 tensor of one dimension."""

    def __init__(self, view: memoryview, log: list[Any], name: str) -> None:
        self.view, self.log, self.name = view, log, name

    def __getitem__(self, part: slice) -> Bytes:
        return Bytes(self.view[part], self.log, self.name)

    def copy_(self, source: Bytes, *, non_blocking: bool) -> None:
        assert non_blocking
        self.log.append(f"copy {source.name} to {self.name}")
        self.view[:] = source.view


class Blocks:
    """A uint8 tensor [blocks, nbytes] on the device."""

    device = "cuda:0"

    def __init__(self, log: list[Any], nbytes: int) -> None:
        self.rows = [bytearray([n + 1]) * nbytes for n in range(4)]
        self.log = log

    def __getitem__(self, block: int) -> Bytes:
        return Bytes(memoryview(self.rows[block]), self.log, "device")


class FakeCuda:
    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.code = 0

    def Stream(self, device: Any) -> Any:  # noqa: N802 - torch's name
        return FakeStream(self.log, f"stream on {device}")

    def Event(self) -> Any:  # noqa: N802 - torch's name
        return FakeEvent(self.log)

    def current_stream(self, device: Any) -> Any:
        return FakeStream(self.log, "engine's stream")

    @contextmanager
    def stream(self, stream: Any) -> Any:
        self.log.append("side stream on")
        yield
        self.log.append("side stream off")

    def cudart(self) -> Any:
        return self

    def cudaHostRegister(self, address: int, length: int, flags: int) -> int:  # noqa: N802
        self.log.append(f"register {address - FakeArena.address} {length} {flags}")
        return self.code

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.log.append(f"unregister {address - FakeArena.address}")
        return 0


class FakeStream:
    def __init__(self, log: list[Any], name: str) -> None:
        self.log, self.name = log, name

    def wait_event(self, event: Any) -> None:
        if self.name == "engine's stream":
            self.log.append(f"engine waits behind copy {event.behind}")
        else:
            self.log.append("side stream waits for mark" if event.marked else "?")

    def synchronize(self) -> None:
        self.log.append("stream synchronized")


class FakeEvent:
    marked = False
    behind = 0

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def record(self, stream: Any) -> None:
        self.marked = stream.name == "engine's stream"
        self.behind = sum(str(entry).startswith("copy") for entry in self.log)
        self.log.append("mark" if self.marked else "done recorded")

    def synchronize(self) -> None:
        self.log.append("done awaited")


class FakeTorch:
    uint8 = "uint8"

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.cuda = FakeCuda(log)

    def frombuffer(self, buffer: memoryview, dtype: str) -> Bytes:
        assert dtype == "uint8"
        return Bytes(buffer, self.log, "arena")


class Half:
    def __init__(self, offset: int, layer: int = 0) -> None:
        self.offset, self.nbytes, self.layer = offset, 8, layer


@pytest.fixture
def log() -> list[Any]:
    return []


def make(log: list[Any]) -> tuple[CudaCopier, list[Blocks], FakeTorch]:
    torch = FakeTorch(log)
    views = [Blocks(log, 8), Blocks(log, 8)]
    return CudaCopier(views, [Half(0), Half(8)], torch), views, torch


def test_a_save_waits_for_the_engine_and_is_over_before_the_epoch_counts(log: list[Any]) -> None:
    copier, _, _ = make(log)
    arena: Any = FakeArena(log)
    mark = copier.mark()
    assert copier.copy_in(arena, [(2, EXTENT)], mark)
    assert log == [
        "mark",
        "epoch looked at",
        f"register {EXTENT} {EXTENT} 0",
        "side stream on",
        "side stream waits for mark",
        "copy device to arena",
        "copy device to arena",
        "done recorded",
        "side stream off",
        "done awaited",
        "epoch looked at",
    ]
    assert arena.bytes[EXTENT : EXTENT + 16] == bytes([3] * 16)


def test_a_load_puts_every_run_in_its_block(log: list[Any]) -> None:
    copier, views, _ = make(log)
    arena: Any = FakeArena(log)
    arena.bytes[100:116] = bytes(range(16))
    assert copier.copy_out(arena, [(1, 100)], copier.mark())
    assert views[0].rows[1] + views[1].rows[1] == bytes(range(16))
    assert log.index("done awaited") < log.index("epoch looked at")


def test_a_load_by_layers_holds_the_engine_behind_each_layers_own_copies(log: list[Any]) -> None:
    torch = FakeTorch(log)
    views = [Blocks(log, 8), Blocks(log, 8)]
    copier = CudaCopier(views, [Half(0, 0), Half(8, 1)], torch)
    arena: Any = FakeArena(log)
    arena.bytes[100:116] = bytes(range(16))
    load = copier.load(arena, [(1, 100), (2, 100)], copier.mark())
    assert "done awaited" not in log  # the engine goes on at once
    load.help()
    load.wait(0)
    assert log[-1] == "engine waits behind copy 2"  # both blocks' first layer
    load.wait(1)
    assert log[-1] == "engine waits behind copy 4"
    assert load.end()
    assert log[-3:] == ["done awaited", "done awaited", "epoch looked at"]
    assert views[0].rows[2] + views[1].rows[2] == bytes(range(16))


def test_a_load_from_an_arena_that_is_gone_launches_nothing(log: list[Any]) -> None:
    class Gone(FakeArena):
        alive = False

    copier, _, _ = make(log)
    gone: Any = Gone(log)
    load = copier.load(gone, [(1, 100)], copier.mark())
    load.wait(0)
    assert not load.end()
    assert log == ["mark"]


def test_extents_are_registered_when_first_used_and_once(log: list[Any]) -> None:
    copier, _, _ = make(log)
    arena: Any = FakeArena(log)
    for _ in range(2):
        copier.copy_in(arena, [(0, 0), (1, 2 * EXTENT)], copier.mark())
    registered = [entry for entry in log if entry.startswith("register")]
    assert registered == [f"register 0 {EXTENT} 0", f"register {2 * EXTENT} {EXTENT} 0"]


def test_an_extent_that_was_given_back_is_registered_anew(log: list[Any]) -> None:
    """The old registration would move bytes to and from memory that nobody else sees."""
    copier, _, _ = make(log)
    arena: Any = FakeArena(log)
    copier.copy_in(arena, [(0, 0), (1, EXTENT)], copier.mark())
    arena.turn[1] = 2
    log.clear()
    copier.copy_in(arena, [(0, 0)], copier.mark())
    assert [e for e in log if "register" in e] == [f"unregister {EXTENT}"]
    arena.turn[1] = 3
    log.clear()
    copier.copy_in(arena, [(0, 0), (1, EXTENT)], copier.mark())
    assert [e for e in log if "register" in e] == [f"register {EXTENT} {EXTENT} 0"]


def test_another_arena_undoes_the_registrations_of_the_last(log: list[Any]) -> None:
    copier, _, _ = make(log)
    first: Any = FakeArena(log)
    second: Any = FakeArena(log)
    copier.copy_in(first, [(0, EXTENT)], copier.mark())
    copier.copy_in(second, [(0, 0)], copier.mark())
    gone = log.index(f"unregister {EXTENT}")
    assert log[gone - 2 : gone] == ["stream synchronized"] * 2
    assert log.index(f"register 0 {EXTENT} 0") > gone


def test_memory_that_cannot_be_registered_is_copied_all_the_same(log: list[Any]) -> None:
    copier, _, torch = make(log)
    torch.cuda.code = 2  # out of memory
    arena: Any = FakeArena(log)
    assert copier.copy_in(arena, [(0, 0)], copier.mark())
    assert arena.bytes[:16] == bytes([1] * 16)
    copier.forget_arena()
    assert not [entry for entry in log if str(entry).startswith("unregister")]


def test_views_are_found_by_address() -> None:
    class Storage:
        def data_ptr(self) -> int:
            return 1000

        def nbytes(self) -> int:
            return 600

    class Tensor:
        device = "cuda:0"

        def untyped_storage(self) -> Storage:
            return Storage()

        def set_(self, *how: Any) -> Any:
            return how[1:]

    class Torch:
        uint8 = "uint8"

        def empty(self, *_: Any, **__: Any) -> Tensor:
            return Tensor()

    class One:
        address, stride, nbytes, offset = 1100, 200, 50, 0

    assert byte_views([Tensor()], [One()], 3, Torch()) == [(100, (3, 50), (200, 1))]
    One.address = 1600
    with pytest.raises(ValueError, match="no tensor holds address 0x640"):
        byte_views([Tensor()], [One()], 3, Torch())
