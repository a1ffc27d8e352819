"""Real faults to a real agent. What needs root or a cgroup says so where it is skipped."""

from agent_fixtures import disk_flags, memory_folder, small_volume, start

__all__ = ["disk_flags", "memory_folder", "small_volume", "start"]
