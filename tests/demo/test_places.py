"""Where the demo puts its tiers."""

from __future__ import annotations

from pathlib import Path

import places
import pytest
from places import NoPlace, make_places

MIB = 1024 * 1024


def test_folders_are_made_apart_and_removed_together() -> None:
    made = make_places(MIB, MIB)
    folders = (made.memory, made.disk, made.scratch)
    assert all(folder.is_dir() for folder in folders)

    made.remove()

    assert not any(folder.exists() for folder in folders)


def test_a_small_shared_memory_moves_the_host_tier_to_the_disk_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SHARED_MEMORY", tmp_path / "absent")
    made = make_places(MIB, MIB)
    try:
        assert made.memory.parent == made.disk.parent
        assert "has no room for 1 MiB" in made.note
    finally:
        made.remove()


def test_a_disk_that_is_too_small_is_named_with_what_is_missing() -> None:
    with pytest.raises(NoPlace, match="MiB free, and the disk tier takes 1099511627776"):
        make_places(MIB, 2**60)
