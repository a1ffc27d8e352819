"""Giving a part of a file's memory back to the node."""

import ctypes
import os
from typing import Final

_PUNCH_HOLE_KEEP_SIZE: Final = 0x02 | 0x01

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def punch_hole(fd: int, offset_bytes: int, length_bytes: int) -> None:
    """Give a range's memory back to the node and keep the file's size: readers see zeros."""
    if _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset_bytes, length_bytes) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
