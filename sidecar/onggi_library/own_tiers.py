"""Host memory and disk for an agent of one's own, held against what there is.

The agent checks its settings too, but names its own fields, and serves with less where there is
less: good for a cache, and not for whoever counts on what was asked for. So what a caller wrote is
looked at here first, and refused by the caller's names before anything is made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onggi_core.quantity import spell_bytes
from onggi_library import in_process
from onggi_library.manager.sizes import GIB, MIB, Size
from onggi_sidecar.agreement import DISK_BYTES_MAX
from onggi_sidecar.arena.file import extents_within, volume_room_bytes
from onggi_sidecar.cgroup import memory_limit_bytes, own_bytes
from onggi_sidecar.disk.room import room_of
from onggi_sidecar.parents import lacks_parent

MEMORY_MIN: Final = 16 * MIB
DISK_MIN: Final = 64 * MIB
DISK_MARGIN_SHARE: Final = 10
"""One part in so many of what the file system has free is left to others,"""
DISK_MARGIN_MIN: Final = GIB
"""and never less than this."""
DISK_DEFAULT_MAX: Final = 1024 * GIB
"""What is taken without being asked for at most."""
EXTENT_MIN: Final = MIB
EXTENT_MAX: Final = 64 * MIB
EXTENTS_AIM: Final = 64
"""An arena of this many extents has room for pages of several sizes."""


def extent_of(memory: int) -> int:
    """The part that an arena is cut into, a power of two; memory is rounded to it."""
    share = max(1, memory // EXTENTS_AIM)
    return min(EXTENT_MAX, max(EXTENT_MIN, 1 << (share.bit_length() - 1)))


def machine_bytes() -> int:
    """Memory of this machine, or of as much of it as this container may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, memory_limit_bytes() or machine)


def host_memory(wanted: Size) -> dict[str, Any]:
    """The agent's settings for so much host memory. Raises ValueError where there is not so much.

    What is in use by others is not looked at: it may be gone soon, but for shared memory's.
    """
    wanted.at_least(MEMORY_MIN)
    there = machine_bytes()
    wanted.at_most(
        max(0, there - own_bytes(min(there, wanted.nbytes))),
        f"this machine, or this container, has {spell_bytes(there)} of memory, and the tiers need "
        "some of it themselves",
    )
    in_process.remove_the_dead()
    extent, folder = extent_of(wanted.nbytes), in_process.SHARED_MEMORY
    free = volume_room_bytes(folder)
    memory = wanted.nbytes // extent * extent
    fits = extents_within(memory, extent, free) * extent
    if fits < memory:
        raise wanted.wrong(
            f"it is taken in {folder}, which has {spell_bytes(free)} free: use up to "
            f"{spell_bytes(fits)}, or make {folder} larger (of a container: --shm-size)"
        )
    return {"memory": memory, "extent": extent}


def disk_bytes(wanted: Size | None, name: str, written: str, folder: Path) -> int:
    """What to take of the disk that `folder` is or will be on. wanted: None for what there is less
    a margin. name, written: as the caller wrote it. Raises ValueError if there is not so much, and
    for a folder that would be made in one that is not there: a path mistyped would fill a disk that
    nobody meant."""
    with told_of(name, written):
        there = Path(written).exists()
    if not there and (why := lacks_parent(Path(written).absolute())):
        raise ValueError(f"{name} is {written!r}: {why}")
    room = _room_bytes(name, written, folder)
    if wanted is not None:
        wanted.at_least(DISK_MIN)
        wanted.at_most(DISK_BYTES_MAX, "that is more than a disk tier can be")
        since = f"the file system of {name} {written!r} has room for {spell_bytes(room)}"
        return wanted.at_most(room, since).nbytes
    most = room - max(DISK_MARGIN_MIN, room // DISK_MARGIN_SHARE)
    if most < DISK_MIN:
        raise ValueError(
            f"{name} is {written!r}, whose file system has {spell_bytes(room)} free, and "
            f"{spell_bytes(DISK_MARGIN_MIN)} are left to others; use another one, or say how much "
            "to take"
        )
    return min(most, DISK_DEFAULT_MAX)


def path_of(name: str, given: object) -> Path:
    """Of a folder. Raises TypeError and ValueError for what is no path."""
    try:
        text = os.fsdecode(os.fspath(given))  # type: ignore[call-overload]
    except TypeError:
        kind = type(given).__name__
        raise TypeError(f"{name} is {given!r:.60}, a {kind}; use text or a path") from None
    if not text or "\0" in text:
        raise ValueError(f"{name} is {text!r}; name a folder")
    return Path(text).absolute()


def usable(name: str, written: str, folder: Path) -> None:
    """Make the folder, which is what was written or below it. Raises ValueError where
    nothing can be written."""
    with told_of(name, written):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def told_of(name: str, written: str) -> Iterator[None]:
    """What the system says of a folder, as a ValueError that names the argument."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"{name} is {written!r}, where a file is in the way; name a folder"
        ) from None
    except OSError as fault:
        if fault.errno == errno.ENOSPC:
            right = "make room there, or use a folder on another disk"
        else:
            right = f"use a folder that uid {os.geteuid()} may write to"
        said = fault.strerror or str(fault)
        raise ValueError(f"{name} is {written!r}, which cannot be used: {said}; {right}") from fault


def _room_bytes(name: str, written: str, folder: Path) -> int:
    """Free, and what the folder has taken: that is to be used again."""
    with told_of(name, written):
        if folder.is_dir():
            return room_of(folder).room_bytes
        there = next(above for above in folder.parents if above.exists())
        return volume_room_bytes(there)
