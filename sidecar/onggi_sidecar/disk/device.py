"""One open file and positioned I/O on it: the only place that moves page bytes.

O_DIRECT, so that a tier of terabytes neither fills the page cache nor is copied twice; where the
filesystem refuses it the same calls go through the page cache. Python releases the GIL in both.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path


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

    def read_into(self, page: memoryview, offset_bytes: int) -> int:
        """Fill page [n] from the file; answers the bytes read, fewer only at the file's end.

        page's address and length and the offset are multiples of 4 KiB. Raises OSError.
        """
        done = 0
        while done < len(page):
            got = os.preadv(self.fd, [page[done:]], offset_bytes + done)
            done += got
            if got == 0 or done % 512:  # a short direct read that is not aligned is the end
                break
        return done

    def write_from(self, page: memoryview, offset_bytes: int) -> None:
        """Write all of page [n], aligned as in read_into. Raises OSError, ShortTransfer."""
        done = 0
        while done < len(page):
            put = os.pwritev(self.fd, [page[done:]], offset_bytes + done)
            if put == 0:
                raise ShortTransfer(done, len(page))
            done += put

    def close(self) -> None:
        os.close(self.fd)
