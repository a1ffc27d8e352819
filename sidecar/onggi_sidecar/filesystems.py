"""What kind of filesystem a folder is on, where that decides what it is good for."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_STATFS_BYTES: Final = 512
"""More than any kernel fills in; the kind is the first word of it."""
_OF_THE_KERNEL: Final = frozenset(
    {0x9FA0, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xCAFE4A11}
)
"""proc, sysfs, cgroup and cgroup2, debugfs, tracefs, securityfs, bpf: they show the kernel's own
state as files, and nobody makes other ones there, whatever the error says."""

_OF_MEMORY: Final = frozenset({0x01021994, 0x858458F6})
"""tmpfs, ramfs."""
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.statfs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]


def kind_of(folder: Path) -> int:
    """The kernel's number for it. Raises OSError."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.statfs(os.fsencode(folder), answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return ctypes.c_long.from_buffer(answer).value


def in_memory(folder: Path) -> bool:
    """Whether the folder's filesystem keeps its files in memory. Raises OSError."""
    return kind_of(folder) in _OF_MEMORY


def takes_no_files(folder: Path, fault: OSError) -> str:
    """Where a fault is the filesystem's, whoever asks: what is so of the folder, as words behind
    its name; empty where it is not. The folder may be one that is still to be made."""
    if fault.errno == errno.EROFS:
        return "is on a filesystem that is mounted read-only"
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if kind_of(there) in _OF_THE_KERNEL:
        return "is where the kernel shows its own state, and takes no files"
    return ""
