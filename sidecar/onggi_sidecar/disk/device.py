"""One open file and positioned I/O on it: the only place that moves page bytes.

O_DIRECT, so that a tier of terabytes neither fills the page cache nor is copied twice; where the
filesystem refuses it the same calls go through the page cache. Python releases the GIL in both.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IOVECS_MAX: Final = 1024
"""IOV_MAX of Linux: buffers one call takes."""
SECTOR_BYTES: Final = 512


class ShortTransfer(OSError):
    """Fewer bytes than asked: the file was cut (read) or the device gave out (write)."""

    def __init__(self, done_bytes: int, asked_bytes: int) -> None:
        super().__init__(errno.EIO, f"{done_bytes} of {asked_bytes} bytes were transferred")


@dataclass(slots=True)
class Device:
    """`direct` says whether O_DIRECT is in use. Tests wrap or replace this class."""

    fd: int
    direct: bool

    @classmethod
    def open(cls, path: Path) -> "Device":
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return cls(os.open(path, flags | os.O_DIRECT), direct=True)
        except OSError as refused:
            if refused.errno != errno.EINVAL:
                raise
        return cls(os.open(path, flags), direct=False)

    def read_into(self, pages: Sequence[memoryview], offset_bytes: int) -> int:
        """Fill pages [n] uint8, one after the other, from the file; answers the bytes read, fewer
        only at the file's end.

        Addresses, lengths and the offset are multiples of 4 KiB. Raises OSError.
        """
        done, left = 0, list(pages)
        while left:
            got = os.preadv(self.fd, left[:IOVECS_MAX], offset_bytes + done)
            done += got
            if got == 0 or got % SECTOR_BYTES:  # a short direct read not aligned is the end
                break
            left = _behind(left, got)
        return done

    def write_from(self, pages: Sequence[memoryview], offset_bytes: int) -> None:
        """Write all of pages, aligned as in read_into. Raises OSError, ShortTransfer."""
        done, left = 0, list(pages)
        while left:
            put = os.pwritev(self.fd, left[:IOVECS_MAX], offset_bytes + done)
            if put == 0:
                raise ShortTransfer(done, done + sum(map(len, left)))
            done += put
            left = _behind(left, put)

    def close(self) -> None:
        os.close(self.fd)


def _behind(views: list[memoryview], done_bytes: int) -> list[memoryview]:
    """What is left of views after their first `done_bytes`."""
    for number, view in enumerate(views):
        if done_bytes < len(view):
            return [view[done_bytes:], *views[number + 1 :]]
        done_bytes -= len(view)
    return []
