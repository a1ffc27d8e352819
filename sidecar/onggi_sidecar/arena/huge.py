"""Huge pages under the arena.

A disk takes a transfer in so many pieces at most (127 or 254 are usual), and 1 MiB in small pages
that lie anywhere in memory is 256: each run became two transfers, the second a few pages long, and
a third slower (decision 0014). A huge page is one piece, and made in less time than 512 small ones.

The kernel is asked for each by name (MADV_COLLAPSE, Linux 6.1), which needs no setting of the node
and no privilege. Where it has none the arena is made of small pages as before.
"""

import ctypes
import mmap
from enum import Enum
from typing import Final

HUGE_BYTES: Final = 2 * 1024 * 1024
REFUSALS_MAX: Final = 8
"""Refused so many times in a row, no more are asked for: memory is in pieces, or the kernel has no
such call, and each attempt to find room takes time."""

_MADV_COLLAPSE: Final = 25
_MAP_NORESERVE: Final = 0x4000
_MAP_FIXED: Final = 0x10
_PROT_NONE: Final = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED: Final = ctypes.c_void_p(-1).value


class Asked(str, Enum):
    """Whether the kernel is asked for huge pages."""

    AUTO = "Auto"
    """Yes; small ones serve where it has none."""
    OFF = "Off"
    """No: finding room for one can hold up a process whose memory lies in pieces."""


class HugePages:
    """Makes pieces of one file huge, through a window of its own: only a mapping at a multiple of
    HUGE_BYTES can be, and where the file is mapped to be used is the interpreter's choice. For one
    thread; the window is 4 MiB of addresses and no memory, kept as long as the process."""

    def __init__(self, fd: int, asked: Asked = Asked.AUTO) -> None:
        self._fd = fd
        self._refusals = 0 if asked is Asked.AUTO else REFUSALS_MAX
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        begin = _libc.mmap(None, 2 * HUGE_BYTES, _PROT_NONE, flags, -1, 0)
        if begin == _FAILED:
            self._refusals = REFUSALS_MAX
            begin = 0
        self._window = -(-begin // HUGE_BYTES) * HUGE_BYTES

    def make(self, offset_bytes: int) -> bool:
        """Have HUGE_BYTES of the file from a multiple of them lie in one huge page, resident and
        charged to this process. At least one page of them exists. False: nothing has changed."""
        if self._refusals >= REFUSALS_MAX or offset_bytes % HUGE_BYTES:
            return False
        access = mmap.PROT_READ | mmap.PROT_WRITE
        if not self._map(access, mmap.MAP_SHARED, self._fd, offset_bytes):
            self._refusals = REFUSALS_MAX
            return False
        made: bool = _libc.madvise(self._window, HUGE_BYTES, _MADV_COLLAPSE) == 0
        self._map(_PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)
        self._refusals = 0 if made else self._refusals + 1
        return made

    def _map(self, access: int, flags: int, fd: int, offset_bytes: int) -> bool:
        """Put something else into the window."""
        fixed = flags | _MAP_FIXED
        at = _libc.mmap(self._window, HUGE_BYTES, access, fixed, fd, offset_bytes)
        return bool(at == self._window)
