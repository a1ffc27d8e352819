"""Real faults to a real agent. What needs root or a cgroup says so where it is skipped."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_fixtures import disk_flags, memory_folder, small_volume, start
from machine import MemoryGroup, make_ext4

__all__ = ["disk_flags", "memory_folder", "small_volume", "start"]

_numbers = itertools.count()


@pytest.fixture
def memory_group() -> Iterator[MemoryGroup]:
    made = MemoryGroup.make(f"onggi-test-{os.getpid()}-{next(_numbers)}")
    yield made
    made.remove()


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes and mounts a small ext4."""
    mounted: list[Path] = []

    def make(size_bytes: int) -> Path:
        make_ext4(tmp_path / "image", tmp_path / "ext4", size_bytes)
        mounted.append(tmp_path / "ext4")
        return mounted[-1]

    yield make
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
