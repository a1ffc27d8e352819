"""The arena on huge pages where the kernel gives them, and on small ones where it does not."""

import ctypes
import os
from pathlib import Path

import pytest

from onggi_sidecar.arena import huge
from onggi_sidecar.arena.file import ArenaFile, create_arena
from onggi_sidecar.arena.huge import HUGE_BYTES, REFUSALS_MAX, Asked, HugePages

MIB = 1024 * 1024


def arena_of(folder: Path, extent_bytes: int) -> ArenaFile:
    size_bytes = 4 * extent_bytes
    return create_arena(folder, size_bytes=size_bytes, extent_bytes=extent_bytes, epoch=b"e" * 16)


def used_bytes(arena: ArenaFile) -> int:
    return os.fstat(arena.fd).st_blocks * 512


class NoHugePages:
    """A kernel that has none to give, and counts how often it is asked."""

    def __init__(self, real: ctypes.CDLL) -> None:
        self.asked = 0
        self.mmap = real.mmap

    def madvise(self, _address: int, _length: int, _advice: int) -> int:
        self.asked += 1
        return -1


@pytest.fixture
def stingy(monkeypatch: pytest.MonkeyPatch) -> NoHugePages:
    kernel = NoHugePages(huge._libc)
    monkeypatch.setattr(huge, "_libc", kernel)
    return kernel


@pytest.mark.parametrize("extent_bytes", [MIB, 2 * MIB, 16 * MIB])
@pytest.mark.parametrize("given", [True, False])
def test_a_touched_extent_is_resident_and_zero_either_way(
    memory_folder: Path, extent_bytes: int, given: bool, request: pytest.FixtureRequest
) -> None:
    if not given:
        request.getfixturevalue("stingy")
    arena = arena_of(memory_folder, extent_bytes)
    before = used_bytes(arena)
    for step in range(arena.touch_steps):
        arena.touch_step(1, step)
    assert used_bytes(arena) - before == extent_bytes
    assert arena.view(arena.extent_offset_bytes(1), extent_bytes) == bytes(extent_bytes)
    arena.release_extent(1)
    assert used_bytes(arena) == before


def test_a_page_of_bytes_is_in_the_huge_page_that_takes_its_place(memory_folder: Path) -> None:
    fd = os.open(memory_folder / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 2 * HUGE_BYTES)
    os.pwrite(fd, b"onggi", HUGE_BYTES + 4096)
    if not HugePages(fd).make(HUGE_BYTES):
        pytest.skip("this kernel gives no huge page (MADV_COLLAPSE, Linux 6.1) now")
    assert os.fstat(fd).st_blocks * 512 == HUGE_BYTES
    expected = bytes(4096) + b"onggi" + bytes(HUGE_BYTES - 4096 - 5)
    assert os.pread(fd, HUGE_BYTES, HUGE_BYTES) == expected
    os.close(fd)


def test_a_kernel_that_has_none_is_asked_a_few_times_only(
    memory_folder: Path, stingy: NoHugePages
) -> None:
    arena = arena_of(memory_folder, 16 * MIB)
    for extent in range(arena.header.extent_count):
        for step in range(arena.touch_steps):
            arena.touch_step(extent, step)
    assert stingy.asked == REFUSALS_MAX
    assert used_bytes(arena) >= 64 * MIB


def test_a_kernel_is_not_asked_where_they_are_off(memory_folder: Path, stingy: NoHugePages) -> None:
    arena = create_arena(
        memory_folder,
        size_bytes=8 * MIB,
        extent_bytes=4 * MIB,
        epoch=b"e" * 16,
        hugepages=Asked.OFF,
    )
    before = used_bytes(arena)
    for step in range(arena.touch_steps):
        arena.touch_step(1, step)
    assert stingy.asked == 0
    assert used_bytes(arena) - before == 4 * MIB


def test_only_whole_huge_pages_are_asked_for(memory_folder: Path, stingy: NoHugePages) -> None:
    fd = os.open(memory_folder / "file", os.O_RDWR | os.O_CREAT)
    assert not HugePages(fd).make(MIB)
    assert stingy.asked == 0
    os.close(fd)
