"""What the agent's tests share: the fixtures of agent_fixtures, and page memory."""

import mmap

import pytest
from agent_fixtures import disk_flags, memory_folder, operator, small_volume, start

__all__ = ["disk_flags", "memory_folder", "operator", "small_volume", "start"]


class Memory:
    """Page memory without an arena: [size] bytes, page-aligned."""

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(-1, size_bytes)

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview:
        return memoryview(self._map)[offset_bytes : offset_bytes + length_bytes]


@pytest.fixture
def memory() -> Memory:
    return Memory(16 * 1024 * 1024)
