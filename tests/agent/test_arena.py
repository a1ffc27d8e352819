"""The arena file: its format, its beginning and its end."""

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from onggi_core.arena_header import (
    DATA_OFFSET_BYTES,
    RETIRED_EPOCH,
    ArenaHeader,
    NotAnArena,
    parse_header,
)
from onggi_sidecar.arena.file import ArenaFile, create_arena
from onggi_sidecar.arena.toucher import TouchEnded, Toucher
from onggi_sidecar.errors import StartRefused

MIB = 1024 * 1024
EPOCH = bytes(range(16))


def make(folder: Path, *, size_bytes: int = 8 * MIB, extent_bytes: int = 2 * MIB) -> ArenaFile:
    return create_arena(folder, size_bytes=size_bytes, extent_bytes=extent_bytes, epoch=EPOCH)


def touch_all(arena: ArenaFile) -> tuple[list[int], TouchEnded]:
    offered: list[int] = []
    ends: list[TouchEnded] = []
    done = threading.Event()

    def ended(end: TouchEnded) -> None:
        ends.append(end)
        done.set()

    Toucher(arena, offer=offered.append, ended=ended).start()
    assert done.wait(10)
    return offered, ends[0]


def test_the_header_lies_where_the_format_page_says(memory_folder: Path) -> None:
    make(memory_folder)
    raw = (memory_folder / "arena").read_bytes()[:56]
    assert raw[:8] == b"ONGGIARN"
    assert raw[8:16] == (1).to_bytes(4, "little") + (56).to_bytes(4, "little")
    assert raw[16:32] == EPOCH
    assert int.from_bytes(raw[32:40], "little") == 2 * MIB
    assert int.from_bytes(raw[40:44], "little") == 4
    assert int.from_bytes(raw[44:48], "little") == 0
    assert int.from_bytes(raw[48:56], "little") == 2 * MIB


def test_the_file_has_exactly_its_size_and_belongs_to_the_group(memory_folder: Path) -> None:
    mask = os.umask(0o077)
    try:
        arena = make(memory_folder)
    finally:
        os.umask(mask)
    found = os.stat(arena.path)
    assert found.st_size == DATA_OFFSET_BYTES + 8 * MIB
    assert found.st_mode & 0o777 == 0o660


def test_extents_are_offered_in_order_and_only_when_resident(memory_folder: Path) -> None:
    arena = make(memory_folder)
    offered, end = touch_all(arena)
    assert offered == [0, 1, 2, 3]
    assert end == TouchEnded(ready_count=4, ready_bytes=8 * MIB, asked_bytes=8 * MIB)
    assert parse_header(os.pread(arena.fd, 56, 0)).ready_count == 4
    assert os.fstat(arena.fd).st_blocks * 512 == 8 * MIB + mmap.PAGESIZE


def test_a_size_that_is_not_whole_extents_is_cut_down(memory_folder: Path) -> None:
    assert make(memory_folder, size_bytes=7 * MIB).header.extent_count == 3


def test_a_client_of_the_old_file_sees_its_epoch_go_and_its_memory_is_freed(
    memory_folder: Path,
) -> None:
    old = make(memory_folder)
    touch_all(old)
    with (memory_folder / "arena").open("rb") as client:
        mapped = mmap.mmap(client.fileno(), 0, prot=mmap.PROT_READ)
        assert mapped[16:32] == EPOCH
        new = create_arena(memory_folder, size_bytes=8 * MIB, extent_bytes=2 * MIB, epoch=b"n" * 16)
        assert mapped[16:32] == RETIRED_EPOCH
        assert os.fstat(client.fileno()).st_blocks * 512 <= mmap.PAGESIZE
    assert os.pread(new.fd, 16, 16) == b"n" * 16
    assert sorted(p.name for p in memory_folder.iterdir()) == ["arena"]


def test_a_file_left_half_made_is_removed(memory_folder: Path) -> None:
    (memory_folder / "arena.new").write_bytes(b"half")
    make(memory_folder)
    assert sorted(p.name for p in memory_folder.iterdir()) == ["arena"]


def test_a_link_in_place_of_the_arena_is_refused_and_its_target_kept(memory_folder: Path) -> None:
    target = memory_folder / "precious"
    target.write_bytes(b"x" * 8192)
    (memory_folder / "arena").symlink_to(target)
    with pytest.raises(StartRefused, match="is not a regular file"):
        make(memory_folder)
    assert target.read_bytes() == b"x" * 8192


def test_retiring_leaves_nothing(memory_folder: Path) -> None:
    arena = make(memory_folder)
    touch_all(arena)
    arena.retire()
    assert list(memory_folder.iterdir()) == []
    assert os.fstat(arena.fd).st_blocks * 512 <= mmap.PAGESIZE


def test_stopping_ends_the_touching_after_the_present_step(memory_folder: Path) -> None:
    arena = make(memory_folder, size_bytes=1024 * MIB, extent_bytes=64 * MIB)
    ends: list[TouchEnded] = []
    toucher = Toucher(arena, offer=lambda _: toucher_stop.set(), ended=ends.append)
    toucher_stop = threading.Event()
    toucher.start()
    assert toucher_stop.wait(10)
    toucher.stop()
    assert len(ends) == 1
    assert ends[0].ready_count < 16


def test_a_volume_too_small_is_a_sentence_and_not_a_signal(
    small_volume: Callable[[str], Path],
) -> None:
    """kserve#6086: a preset volume was too small and the process died of a signal."""
    folder = small_volume("9M")
    with pytest.raises(StartRefused, match=r"extent of 16777216 bytes .* room for 9437184 bytes"):
        make(folder, size_bytes=32 * MIB, extent_bytes=16 * MIB)
    arena = make(folder, size_bytes=32 * MIB, extent_bytes=2 * MIB)
    try:
        assert arena.header.extent_count == 4
        (folder / "filler").write_bytes(b"x" * 5 * MIB)
        offered, end = touch_all(arena)
        assert offered == [0]
        assert end.ready_bytes == 2 * MIB
        assert "after 2097152 of 8388608 bytes" in end.problem
        assert os.fstat(arena.fd).st_blocks * 512 <= 2 * MIB + mmap.PAGESIZE
    finally:
        os.close(arena.fd)
        arena.map.close()


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "has 0 bytes"),
        (b"NOTONGGI" + bytes(48), "magic is b'NOTONGGI'"),
        (b"ONGGIARN" + (2).to_bytes(4, "little") + bytes(44), "version is 2"),
    ],
)
def test_a_foreign_header_is_refused_by_name(raw: bytes, sentence: str) -> None:
    with pytest.raises(NotAnArena, match=sentence):
        parse_header(raw)


def test_a_header_reads_back_as_it_was_written() -> None:
    header = ArenaHeader(EPOCH, 64 * MIB, 16, 3)
    assert parse_header(header.pack()) == header
    assert header.file_bytes == DATA_OFFSET_BYTES + 1024 * MIB
