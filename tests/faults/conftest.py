"""Real faults to a real agent. What needs root or a cgroup says so where it is skipped."""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_fixtures import disk_flags, memory_folder, operator, small_volume, start
from agent_process import WAIT_S
from machine import MemoryGroup, make_ext4
from workers import StartWorker, start_worker_on

__all__ = ["disk_flags", "memory_folder", "operator", "small_volume", "start"]

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


@pytest.fixture
def start_worker(memory_folder: Path) -> Iterator[StartWorker]:
    started: list[subprocess.Popen[str]] = []

    def start_one(seed: int, fingerprints: str, page_bytes: int) -> subprocess.Popen[str]:
        socket = memory_folder / "agent.sock"
        started.append(start_worker_on(socket, seed, fingerprints, page_bytes))
        return started[-1]

    yield start_one
    for worker in started:
        if worker.poll() is None:
            worker.kill()
        worker.communicate(timeout=WAIT_S)
