"""The arena as a client maps it: what it refuses, and what it touches."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from onggi import arena as client_side
from onggi.arena import Arena, ArenaRefused
from onggi_core.arena_header import DATA_OFFSET_BYTES, TURNS_OFFSET, ArenaHeader

EPOCH = b"e" * 16
MIB = 1 << 20


def make(folder: Path, **changes: object) -> Path:
    path = folder / "arena"
    header = ArenaHeader(EPOCH, MIB, 4)
    raw = bytearray(header.pack())
    for name, value in changes.items():
        at = {"magic": 0, "version": 8, "epoch": 16}[name]
        assert isinstance(value, bytes)
        raw[at : at + len(value)] = value
    with path.open("wb") as file:
        file.truncate(header.file_bytes)
        file.write(raw)
    set_turns(path, 1, 1, 1, 1)
    return path


def set_turns(path: Path, *turns: int) -> None:
    with path.open("r+b") as file:
        file.seek(TURNS_OFFSET)
        file.write(b"".join(turn.to_bytes(4, "little") for turn in turns))


def attach(path: Path, file_bytes: int = DATA_OFFSET_BYTES + 4 * MIB) -> Arena:
    return Arena(
        str(path),
        epoch=EPOCH,
        file_bytes=file_bytes,
        data_offset=DATA_OFFSET_BYTES,
        extent_bytes=MIB,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"magic": b"ONGGIXXX"}, "magic is b.ONGGIXXX"),
        ({"version": b"\x01\0\0\0"}, "version is 1 with 72 header bytes, should be 3"),
        ({"epoch": bytes(16)}, "has epoch 0000"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, changes: dict[str, bytes], said: str) -> None:
    with pytest.raises(ArenaRefused, match=said):
        attach(make(tmp_path, **changes))


def test_a_file_shorter_than_announced_is_refused(tmp_path: Path) -> None:
    """Touching what is not there would end the engine with a signal."""
    with pytest.raises(ArenaRefused, match="the agent announced"):
        attach(make(tmp_path), DATA_OFFSET_BYTES + 5 * MIB)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path).rename(tmp_path / "real")
    (tmp_path / "arena").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic links"):
        attach(tmp_path / "arena")


def test_ranges_outside_the_data_are_refused_before_a_byte_moves(tmp_path: Path) -> None:
    arena = attach(make(tmp_path))
    for offset, length in ((0, 1), (DATA_OFFSET_BYTES - 1, 2), (DATA_OFFSET_BYTES + 4 * MIB, 1)):
        with pytest.raises(ValueError, match="is outside"):
            arena.view(offset, length)
        with pytest.raises(ValueError, match="is outside"):
            arena.copy_out([(DATA_OFFSET_BYTES, 0, 1), (offset, 0, length)])


def test_views_outlive_the_arena(tmp_path: Path) -> None:
    """The object goes, the mapping stays: reading through the view must not be a fault."""
    arena = attach(make(tmp_path))
    view = arena.view(DATA_OFFSET_BYTES, 4096)
    view[:4] = b"kept"
    del arena
    gc.collect()
    assert bytes(view[:4]) == b"kept"


def test_an_older_kernel_without_populate_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_side, "_MADV_POPULATE_READ", 9999)
    arena = attach(make(tmp_path))
    arena.view(DATA_OFFSET_BYTES, 4096)[:4] = b"here"
    assert not arena._can_populate
    assert bytes(arena.view(DATA_OFFSET_BYTES, 4)) == b"here"


def test_only_used_stretches_are_populated(tmp_path: Path) -> None:
    arena = attach(make(tmp_path))
    arena.prepare(DATA_OFFSET_BYTES + 2 * MIB, 4096)
    arena.prepare(DATA_OFFSET_BYTES + 3 * MIB - 1, 2)
    assert arena._populated.keys() == {2, 3}


def test_an_idle_thread_populates_what_is_touched_and_no_more(tmp_path: Path) -> None:
    path = make(tmp_path)
    arena = attach(path)
    arena.prepare(DATA_OFFSET_BYTES + MIB, 1)
    assert [arena.populate_next() for _ in range(4)] == [True, True, True, False]
    assert arena._populated.keys() == {0, 1, 2, 3}


def test_extents_without_memory_are_left_to_the_agent(tmp_path: Path) -> None:
    """Touching them here would take memory, and charge it to the engine."""
    path = make(tmp_path)
    set_turns(path, 1, 0, 0, 2)
    arena = attach(path)
    assert [arena.populate_next() for _ in range(2)] == [True, False]
    set_turns(path, 1, 0, 1, 2)
    assert [arena.populate_next() for _ in range(2)] == [True, False]
    assert arena._populated.keys() == {0, 2}


def test_an_extent_that_came_back_is_populated_anew(tmp_path: Path) -> None:
    """Its page table went with its memory."""
    path = make(tmp_path)
    arena = attach(path)
    while arena.populate_next():
        pass
    set_turns(path, 1, 2, 1, 1)
    assert not arena.populate_next()
    set_turns(path, 1, 3, 1, 1)
    assert [arena.populate_next() for _ in range(2)] == [True, False]
    assert arena.turn_of(1) == 3


def test_extents_of_another_size_than_announced_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArenaRefused, match="has extents of 1048576 bytes in 6291456"):
        attach(make(tmp_path), DATA_OFFSET_BYTES + 3 * MIB)
