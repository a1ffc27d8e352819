"""The claim on a folder: one agent, one folder, however many share the disk.

Two agents on one folder would overwrite each other's slots, so an flock guards it: the kernel
drops it when its holder dies, and it holds between containers of one node, where process ids do
not mean the same. What stands in the lock file is for people only.
"""

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from onggi_core.engine.events import IoOutcome
from onggi_core.geometry import ALIGN_BYTES
from onggi_sidecar import claims
from onggi_sidecar.disk.outcome import classify
from onggi_sidecar.errors import DiskUnavailable, StartRefused
from onggi_sidecar.filesystems import takes_no_files
from onggi_sidecar.group import give_to_group
from onggi_sidecar.holder import Holder, read_holder, write_holder

LOCK_NAME: Final = "lock"
FOLDER_MODE: Final = 0o770
SHARED_FOLDERS_MAX: Final = 64
"""Agents that can share one disk path: pods of one pool on one node, several times over."""


class Claim(str, Enum):
    """Whose folder disk_path is."""

    EXCLUSIVE = "exclusive"
    """This agent's alone; a second one refuses to start."""
    SHARED = "shared"
    """Each agent takes the first free sub-folder slot-N, so that the successor of a dead pod
    finds what it left."""


@dataclass(slots=True)
class ClaimedFolder:
    """A folder held until release() or the end of the process."""

    path: Path
    lock_fd: int

    def release(self) -> None:
        os.ftruncate(self.lock_fd, 0)
        claims.release(self.lock_fd)


def claim_folder(root: Path, claim: Claim, holder: Holder) -> ClaimedFolder:
    """Make, lock and try out the folder.

    Raises StartRefused when the folder is another agent's, since two agents set up for one folder
    are a mistake to be told at once; DiskUnavailable when it cannot be used, with a sentence for
    whoever set it.
    """
    try:
        _make(root)
        if claim is Claim.EXCLUSIVE:
            claimed = _lock(root, holder)
            if isinstance(claimed, str):
                raise StartRefused(
                    f"disk_path {root} is in use by {claimed}; give each agent a folder of its "
                    "own, or set disk_claim to shared"
                )
        else:
            claimed = _lock_first_free(root, holder)
        _probe(claimed.path)
    except OSError as refused:
        if root.exists() and not root.is_dir():
            raise DiskUnavailable(f"disk_path {root} is not a folder; name one") from refused
        if why := takes_no_files(root, refused):
            raise DiskUnavailable(f"disk_path {root} {why}; name a folder on a disk") from refused
        raise DiskUnavailable(
            f"cannot write to disk_path {root} as uid {os.geteuid()}, gid {os.getegid()}, groups "
            f"{os.getgroups()}: {refused.strerror}; let one of these write to it (mode 0770)"
        ) from refused
    return claimed


def _lock_first_free(root: Path, holder: Holder) -> ClaimedFolder:
    for number in range(SHARED_FOLDERS_MAX):
        folder = slot(root, number)
        _make(folder)
        claimed = _lock(folder, holder)
        if not isinstance(claimed, str):
            return claimed
    raise DiskUnavailable(
        f"all {SHARED_FOLDERS_MAX} folders slot-0 to slot-{SHARED_FOLDERS_MAX - 1} under "
        f"{root} are in use; fewer agents can share one disk_path"
    )


def slot(root: Path, number: int) -> Path:
    """One of the folders that agents share a path by."""
    return root / f"slot-{number}"


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(FOLDER_MODE)
        give_to_group(folder)


def _lock(folder: Path, holder: Holder) -> ClaimedFolder | str:
    """The folder, locked; or who holds it, in words."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder / LOCK_NAME, flags, 0o660)
    try:
        claims.claim(fd)
    except BlockingIOError:
        held_by = read_holder(fd)
        os.close(fd)
        return held_by
    try:
        write_holder(fd, holder)
    except OSError as refused:  # the text is for people: a full filesystem is no reason to give up
        if classify(refused) is not IoOutcome.NO_SPACE:
            claims.release(fd)
            raise
    return ClaimedFolder(folder, fd)


def _probe(folder: Path) -> None:
    """Write and read back one page: permission and a dead device show here, not at the first
    block. A full filesystem passes; the tier has a state for that."""
    probe = folder / f".probe-{os.getpid()}"
    fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o660)
    try:
        page = os.urandom(ALIGN_BYTES)
        try:
            os.pwrite(fd, page, 0)
        except OSError as refused:
            if classify(refused) is not IoOutcome.NO_SPACE:
                raise
        else:
            if os.pread(fd, ALIGN_BYTES, 0) != page:
                raise DiskUnavailable(f"{folder} does not give back what is written to it")
    finally:
        os.close(fd)
        probe.unlink()
