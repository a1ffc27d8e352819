"""Where the demo puts things: the arena in memory, the disk tier on a disk, all of it removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "onggi-demo-"
SHARED_MEMORY: Final = Path("/dev/shm")
MOUNTS: Final = Path("/proc/self/mounts")
SPARE_BYTES: Final = 256 * 1024 * 1024
"""Left to others on whatever we fill: header, journal, logs, and a machine that still breathes."""


class NoPlace(Exception):
    """No folder can hold what the demo needs. The message says which, and how much is missing."""


@dataclass(frozen=True)
class Places:
    """Folders of this run. note: what a reader of the figures has to know about them; or empty."""

    memory: Path
    disk: Path
    note: str

    @property
    def socket(self) -> Path:
        return self.memory / "agent.sock"

    @property
    def scratch(self) -> Path:
        """For logs and whatever a library wants to write."""
        return self.disk / "scratch"

    def remove(self) -> None:
        for folder in (self.memory, self.disk):
            shutil.rmtree(folder, ignore_errors=True)


def make_places(memory_bytes: int, disk_bytes: int) -> Places:
    """Make the folders. Raises NoPlace, with nothing made."""
    disk_parent, note = _disk_parent(disk_bytes)
    memory_parent = SHARED_MEMORY
    if not _has_room(SHARED_MEMORY, memory_bytes):
        memory_parent = disk_parent
        note = (
            f"{SHARED_MEMORY} has no room for {memory_bytes >> 20} MiB: the host tier is a file in "
            f"{disk_parent}, and is slower than it would be in memory"
        )
        if not _has_room(disk_parent, memory_bytes + disk_bytes):
            raise NoPlace(
                f"neither {SHARED_MEMORY} nor {disk_parent} has room for {memory_bytes >> 20} MiB "
                f"of host tier"
            )
    disk = Path(tempfile.mkdtemp(prefix=PREFIX, dir=disk_parent))
    memory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory_parent))
    places = Places(memory, disk, note)
    places.scratch.mkdir()
    return places


def _disk_parent(disk_bytes: int) -> tuple[Path, str]:
    """The usual temporary folder; where that one is in memory, /var/tmp, which never is."""
    usual = Path(tempfile.gettempdir())
    parents = [usual, Path("/var/tmp")]
    fit = [p for p in parents if _has_room(p, disk_bytes)]
    if not fit:
        raise NoPlace(
            f"{usual} has {shutil.disk_usage(usual).free >> 20} MiB free, and the disk tier takes "
            f"{disk_bytes >> 20}; free some, or name another folder: TMPDIR=... make demo"
        )
    on_disk = [p for p in fit if not _in_memory(p)]
    if on_disk:
        return on_disk[0], ""
    return fit[0], f"{fit[0]} is in memory, so the disk tier is not on a disk in this run"


def _has_room(folder: Path, needed_bytes: int) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    return shutil.disk_usage(folder).free >= needed_bytes + SPARE_BYTES


def _in_memory(folder: Path) -> bool:
    """Whether the file system under `folder` is a tmpfs: of the mounts above it, the longest."""
    path, best, kind = str(folder.resolve()), "", ""
    for line in MOUNTS.read_text().splitlines():
        _, mount, this_kind, *_ = line.split()
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, this_kind
    return kind in ("tmpfs", "ramfs")
