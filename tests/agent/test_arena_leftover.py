"""What is read of a dead agent's arena: whole pieces, each freed as it is taken, or nothing."""

import os
import struct
from array import array
from pathlib import Path

import pytest

from onggi_core.arena_header import MAGIC, RETIRED_EPOCH
from onggi_core.board.writer import Board
from onggi_core.identity import ROOT
from onggi_core.wire.requests import SpaceSpec
from onggi_sidecar.arena.file import ArenaFile, create_arena
from onggi_sidecar.arena.leftover import Leftover, take_leftover

MIB = 1024 * 1024
SPACE = SpaceSpec(b"f" * 16, MIB, 16)


def left(folder: Path) -> tuple[ArenaFile, Leftover]:
    """An arena of two extents whose second one holds a block, and what is found of it."""
    old = create_arena(folder, size_bytes=4 * MIB, extent_bytes=2 * MIB, epoch=b"e" * 16)
    for extent in range(2):
        for step in range(old.touch_steps):
            old.touch_step(extent, step)
        old.publish(extent)
    old.view(old.extent_offset_bytes(1), MIB)[:] = b"k" * MIB
    board = Board(old.board, old.header.board_slots)
    board.name_space(0, 1, SPACE)
    board.show([0], 1, [b"k" * 16], [ROOT], array("I", [2 * MIB // 4096]))
    found = take_leftover(folder / "arena", 2 * MIB)
    assert found is not None
    return old, found


def test_a_piece_is_free_in_the_old_file_once_it_was_taken(memory_folder: Path) -> None:
    old, found = left(memory_folder)
    assert os.pread(old.fd, 16, 16) == RETIRED_EPOCH
    assert found.take(0, 0, 2 * MIB) == b"", "nothing is shown there"
    assert found.take(1, 0, MIB) == b"k" * MIB
    assert os.pread(old.fd, MIB, old.extent_offset_bytes(1)) == bytes(MIB)
    found.close()
    assert list(memory_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "extent_bytes", "why"),
    [
        (0, MIB, "extent was 2097152 bytes (2MiB) then, and is 1048576 bytes (1MiB) now"),
        (7, 2 * MIB, "an agent of another version made it ("),
    ],
)
def test_memory_that_no_longer_fits_is_given_up_with_the_reason(
    memory_folder: Path, caplog: pytest.LogCaptureFixture, version: int, extent_bytes: int, why: str
) -> None:
    old = create_arena(memory_folder, size_bytes=4 * MIB, extent_bytes=2 * MIB, epoch=b"e" * 16)
    if version:
        os.pwrite(old.fd, struct.pack("<I", version), len(MAGIC))
    assert take_leftover(memory_folder / "arena", extent_bytes) is None
    assert why in caplog.text
    assert list(memory_folder.iterdir()) == []


def test_an_extent_that_was_cut_is_not_kept(memory_folder: Path) -> None:
    """Half a piece, filled up with zeros, would be sealed as a page."""
    old, found = left(memory_folder)
    os.ftruncate(old.fd, old.extent_offset_bytes(1) + MIB // 2)
    assert found.take(1, 0, MIB) == b""
    assert found.held == {}
    found.close()
