"""What a test may take of this machine: cgroups and small filesystems, given back at the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")
LEAVE_WITHIN_S = 10.0


@dataclass(frozen=True)
class MemoryGroup:
    """A memory cgroup of the test's own, of whichever version this machine has."""

    folder: Path
    version: int

    @classmethod
    def make(cls, name: str) -> MemoryGroup:
        """Below this process's own group. Skips, saying why, where that is not allowed."""
        if (CGROUPS / "memory").is_dir():
            folder, version = _own_group("memory", CGROUPS / "memory") / name, 1
        elif (CGROUPS / "cgroup.controllers").exists():
            folder, version = CGROUPS / name, 2
        else:
            pytest.skip("no memory cgroup is mounted under /sys/fs/cgroup")
        try:
            folder.mkdir()
        except OSError as fault:
            pytest.skip(f"a cgroup cannot be made in {folder.parent}: {fault.strerror}")
        made = cls(folder, version)
        if not made._limit_file.exists():
            folder.rmdir()
            pytest.skip(f"the memory controller is not handed down to {folder.parent}")
        return made

    @property
    def _limit_file(self) -> Path:
        return self.folder / ("memory.limit_in_bytes" if self.version == 1 else "memory.max")

    def limit(self, size_bytes: int) -> None:
        self._limit_file.write_text(str(size_bytes))

    @property
    def procs(self) -> Path:
        """A process that writes its number here is in the group from then on."""
        return self.folder / "cgroup.procs"

    @property
    def used_bytes(self) -> int:
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self.folder / name).read_text())

    @property
    def shared_bytes(self) -> int:
        """Of that, files in memory."""
        for line in (self.folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "shmem":
                return int(value)
        raise AssertionError("memory.stat has no shmem")

    @property
    def killed(self) -> int:
        """How often the kernel killed a process here for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        for line in (self.folder / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        raise AssertionError(f"{name} does not count kills")

    def remove(self) -> None:
        give_up_s = time.monotonic() + LEAVE_WITHIN_S
        while True:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            assert time.monotonic() < give_up_s, f"{self.procs.read_text()} are still in the group"
            time.sleep(0.05)


def _own_group(controller: str, tree: Path) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (tree / path.lstrip("/")).is_dir():
            return tree / path.lstrip("/")
    return tree


def make_ext4(image: Path, folder: Path, size_bytes: int) -> None:
    """A small real filesystem in a file. Skips, saying why, where it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a filesystem needs root")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    folder.mkdir()
    for command in (
        ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)],
        ["mount", "-o", "loop", str(image), str(folder)],
    ):
        try:
            tried = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as none:
            pytest.skip(f"{none.filename} is not installed")
        if tried.returncode:
            pytest.skip(f"{command[0]} cannot: {tried.stderr.strip()}")
