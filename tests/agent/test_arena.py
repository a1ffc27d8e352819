"""The arena file: its format, its beginning and its end."""

import gc
import mmap
import os
import queue
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
from onggi_core.board.layout import Layout
from onggi_sidecar.arena.file import ArenaFile, create_arena
from onggi_sidecar.arena.toucher import Settled, Toucher
from onggi_sidecar.errors import StartRefused

MIB = 1024 * 1024
EPOCH = bytes(range(16))
BOARD = Layout(512).nbytes
FRONT = 2 * mmap.PAGESIZE + BOARD


def make(folder: Path, *, size_bytes: int = 8 * MIB, extent_bytes: int = 2 * MIB) -> ArenaFile:
    return create_arena(folder, size_bytes=size_bytes, extent_bytes=extent_bytes, epoch=EPOCH)


def used_bytes(arena: ArenaFile) -> int:
    return os.fstat(arena.fd).st_blocks * 512


class Touching:
    """A toucher and what it told."""

    def __init__(self, arena: ArenaFile, extents: int) -> None:
        self.told: queue.Queue[tuple[str, int] | Settled] = queue.Queue()
        self.toucher = Toucher(
            arena,
            touched=lambda extent: self.told.put(("touched", extent)),
            refused=lambda extent: self.told.put(("refused", extent)),
            settled=self.told.put,
            fell=lambda: self.told.put(("fell", -1)),
        )
        self.toucher.start(extents)

    def until_settled(self) -> tuple[list[tuple[str, int]], Settled]:
        told = []
        while not isinstance(one := self.told.get(timeout=60), Settled):
            told.append(one)
        return told, one


def touch_all(arena: ArenaFile) -> tuple[list[int], Settled]:
    touching = Touching(arena, arena.header.extent_count)
    told, end = touching.until_settled()
    touching.toucher.stop()
    return [extent for verb, extent in told if verb == "touched"], end


def test_the_header_lies_where_the_format_page_says(memory_folder: Path) -> None:
    make(memory_folder)
    raw = (memory_folder / "arena").read_bytes()[:72]
    assert raw[:8] == b"ONGGIARN"
    assert raw[8:16] == (3).to_bytes(4, "little") + (72).to_bytes(4, "little")
    assert raw[16:32] == EPOCH
    assert int.from_bytes(raw[32:40], "little") == 2 * MIB
    assert int.from_bytes(raw[40:44], "little") == 4
    assert int.from_bytes(raw[44:48], "little") == 4096
    assert int.from_bytes(raw[48:56], "little") == 2 * MIB
    assert int.from_bytes(raw[56:64], "little") == 8192
    assert int.from_bytes(raw[64:68], "little") == 512
    assert raw[68:72] == bytes(4)


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
    assert end == Settled(ready_bytes=8 * MIB, asked_bytes=8 * MIB)
    assert os.pread(arena.fd, 16, 4096) == (1).to_bytes(4, "little") * 4
    assert used_bytes(arena) == 8 * MIB + FRONT


def test_a_file_made_for_a_larger_budget_takes_memory_for_the_present_one(
    memory_folder: Path,
) -> None:
    arena = make(memory_folder)
    touching = Touching(arena, 2)
    assert touching.until_settled()[0] == [("touched", 0), ("touched", 1)]
    assert used_bytes(arena) == 4 * MIB + FRONT
    touching.toucher.touch(3)
    assert touching.until_settled() == ([("touched", 3)], Settled(6 * MIB, 6 * MIB))
    assert used_bytes(arena) == 6 * MIB + FRONT
    assert list(arena.turns) == [1, 1, 0, 1]
    touching.toucher.stop()


def test_memory_given_back_is_the_nodes_and_can_be_taken_again(memory_folder: Path) -> None:
    """A client's mapping of it stays valid: it shows zeros, and no signal comes."""
    arena = make(memory_folder)
    touching = Touching(arena, 4)
    touching.until_settled()
    with (memory_folder / "arena").open("r+b") as client:
        mapped = mmap.mmap(client.fileno(), 0)
    at = arena.extent_offset_bytes(1)
    mapped[at : at + 4] = b"seen"
    touching.toucher.release(1)
    touching.toucher.touch(1)
    assert touching.until_settled()[0] == [("touched", 1)]
    assert list(arena.turns) == [1, 3, 1, 1]
    assert mapped[at : at + 4] == bytes(4)
    touching.toucher.release(1)
    touching.toucher.release(2)
    touching.toucher.touch(2)
    assert touching.until_settled() == ([("touched", 2)], Settled(6 * MIB, 6 * MIB))
    assert used_bytes(arena) == 6 * MIB + FRONT
    assert list(arena.turns) == [1, 4, 3, 1]
    touching.toucher.stop()


def test_an_extent_asked_for_twice_is_told_once(memory_folder: Path) -> None:
    arena = make(memory_folder)
    touching = Touching(arena, 4)
    for extent in range(4):
        touching.toucher.touch(extent)
    told, _ = touching.until_settled()
    assert told == [("touched", extent) for extent in range(4)]
    touching.toucher.touch(2)
    touching.toucher.stop()
    assert touching.told.empty()


def test_what_a_late_reader_took_of_a_hole_is_swept_up(memory_folder: Path) -> None:
    """A client that looked at the turn a moment before it changed fills its page table anew, and
    shared memory makes pages for that."""
    arena = make(memory_folder)
    touch_all(arena)
    arena.release_extent(2)
    arena.sweep()
    assert list(arena.turns) == [1, 1, 2, 1]
    at = arena.extent_offset_bytes(2)
    assert arena.map[at] == 0
    assert used_bytes(arena) > 6 * MIB + FRONT
    arena.sweep()
    assert used_bytes(arena) == 6 * MIB + FRONT
    assert list(arena.turns) == [1, 1, 2, 1]


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
    touching = Touching(arena, 16)
    assert touching.told.get(timeout=60) == ("touched", 0)
    touching.toucher.stop()
    assert arena.ready_bytes < 1024 * MIB


@pytest.mark.parametrize("step", ["touch_step", "release_extent", "sweep"])
def test_a_bug_in_the_toucher_is_told_to_the_agent(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ArenaFile, step, fail)
    monkeypatch.setattr("onggi_sidecar.arena.toucher.SWEEP_S", 0.01)
    touching = Touching(make(memory_folder), 1)
    touching.toucher.release(0)
    told = []
    while ("fell", -1) not in told:
        told.append(touching.told.get(timeout=60))
    touching.toucher.stop()
    touching.toucher.stop()  # an agent's end does not trip over a thread that is gone


def test_a_volume_too_small_is_a_sentence_and_not_a_signal(
    small_volume: Callable[[str], Path],
) -> None:
    """kserve#6086: a preset volume was too small and the process died of a signal."""
    folder = small_volume("9M")
    with pytest.raises(
        StartRefused, match=r"extent of 16777216 bytes \(16MiB\) .* room for 9437184 bytes \(9MiB\)"
    ):
        make(folder, size_bytes=32 * MIB, extent_bytes=16 * MIB)
    arena = make(folder, size_bytes=32 * MIB, extent_bytes=2 * MIB)
    try:
        assert arena.header.extent_count == 4
        (folder / "filler").write_bytes(b"x" * 5 * MIB)
        touching = Touching(arena, 4)
        told, end = touching.until_settled()
        assert told == [("touched", 0), ("refused", 1), ("refused", 2), ("refused", 3)]
        assert end.ready_bytes == 2 * MIB
        assert "after 2097152 bytes (2MiB) of 8388608 bytes (8MiB)" in end.problem
        assert used_bytes(arena) <= 2 * MIB + FRONT
        (folder / "filler").unlink()
        touching.toucher.touch(1)
        assert touching.until_settled() == ([("touched", 1)], Settled(4 * MIB, 4 * MIB))
        touching.toucher.stop()
    finally:
        arena.turns.release()
        arena.map.close()
        del arena, touching
        gc.collect()  # which closes its file


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "has 0 bytes"),
        (b"NOTONGGI" + bytes(64), "magic is b'NOTONGGI'"),
        (b"ONGGIARN" + (1).to_bytes(4, "little") + bytes(60), "version is 1"),
        (ArenaHeader(EPOCH, MIB, 600_000).pack(), "turns of 600000 extents lie at 4096, outside"),
    ],
)
def test_a_foreign_header_is_refused_by_name(raw: bytes, sentence: str) -> None:
    with pytest.raises(NotAnArena, match=sentence):
        parse_header(raw)


def test_a_header_reads_back_as_it_was_written() -> None:
    header = ArenaHeader(EPOCH, 64 * MIB, 16)
    assert parse_header(header.pack()) == header
    assert header.file_bytes == DATA_OFFSET_BYTES + 1024 * MIB
