"""Plain O_DIRECT reads of a file, with as many at once as the agent does: the bare disk.

Its best case: a fresh file, pages in order, straight into the caller's memory, nothing checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from bench.pages import Region
from bench.sizes import MIB
from onggi_sidecar.disk.schedule import THREADS

NAME = f"O_DIRECT preadv, {THREADS} threads"


class BareFile:
    """A file of `source`'s bytes in `folder`."""

    def __init__(self, folder: Path, source: Region) -> None:
        """Raises OSError where the file system knows no O_DIRECT."""
        self._path = folder / "bare"
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        os.posix_fallocate(self._fd, 0, source.nbytes)
        for begin in range(0, source.nbytes, MIB):
            os.pwritev(self._fd, [source.view[begin : begin + MIB]], begin)
        os.fsync(self._fd)
        self._threads = ThreadPoolExecutor(THREADS)

    def __enter__(self) -> BareFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown()
        os.close(self._fd)
        self._path.unlink()

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Fill `pages` with what lies at `first` and after it. Raises OSError."""

        def one(number: int) -> int:
            page = pages[number]
            return os.preadv(self._fd, [page], first + number * page.nbytes)

        for number, got in enumerate(self._threads.map(one, range(len(pages)))):
            if got != pages[number].nbytes:
                raise OSError(f"{self._path}: {got} of {pages[number].nbytes} bytes were read")
