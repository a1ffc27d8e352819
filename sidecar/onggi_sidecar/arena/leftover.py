"""What an agent that died left in memory: its arena, of which the sealed pages go on into the next.

The old file is never used again as it is: a client of the dead agent may be in the middle of a copy
into a page of it, for as long as it likes. So its epoch is zeroed first, which ends all belief in
it, and then what its board shows is copied into the new file, a step at a time, each step's memory
freed once it was copied: the two arenas together never take more than one and a step.
"""

import errno
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onggi_core.arena_header import (
    EPOCH_OFFSET,
    HEADER_BYTES,
    MAGIC,
    RETIRED_EPOCH,
    TURN_BYTES,
    ArenaHeader,
    NotAnArena,
    has_memory,
    parse_header,
)
from onggi_core.board.layout import Layout
from onggi_core.board.survey import Held, survey
from onggi_sidecar.arena.holes import punch_hole
from onggi_sidecar.errors import StartRefused

_BLOCK_BYTES: Final = 512
"""What st_blocks counts in."""


@dataclass(slots=True)
class Leftover:
    """An old arena's file, unlinked and believed by nobody. held: by extent, what is worth keeping
    of it."""

    fd: int
    header: ArenaHeader
    map: mmap.mmap
    held: dict[int, list[Held]]

    @property
    def memory_bytes(self) -> int:
        """What its pages take until they have moved."""
        return os.fstat(self.fd).st_blocks * _BLOCK_BYTES

    def piece(self, extent: int, begin: int, nbytes: int) -> memoryview | None:
        """A piece of an extent that is to be kept, uint8 [nbytes]; None: write zeros there."""
        if extent not in self.held:
            return None
        at = self._at(extent, begin)
        return memoryview(self.map)[at : at + nbytes]

    def free(self, extent: int, begin: int, nbytes: int) -> None:
        """A piece that was moved, or that nobody wants."""
        if extent < self.header.extent_count:
            punch_hole(self.fd, self._at(extent, begin), nbytes)

    def close(self) -> None:
        """Free what is left of it."""
        self.held = {}
        _free_all(self.fd)
        self.map.close()
        os.close(self.fd)

    def _at(self, extent: int, begin: int) -> int:
        return self.header.data_offset_bytes + extent * self.header.extent_bytes + begin


def take_leftover(path: Path, extent_bytes: int) -> Leftover | None:
    """The arena found at `path`, no longer believed by any client and without a name. None where
    there is none, or none with a page that could be kept: then all of its memory is free.

    Only a regular file is touched, and never through a symbolic link: the folder is shared with
    the engine's container. Raises StartRefused.
    """
    fd = _open(path)
    if fd is None:
        return None
    kept = False
    try:
        size_bytes = os.fstat(fd).st_size
        front = os.pread(fd, HEADER_BYTES, 0)
        _retire(fd)
        header = _usable(front, size_bytes, extent_bytes)
        held = _held(fd, header) if header is not None else {}
        path.unlink(missing_ok=True)
        if header is None or not held:
            _free_all(fd)
            return None
        punch_hole(fd, mmap.PAGESIZE, header.data_offset_bytes - mmap.PAGESIZE)
        kept = True
        mapped = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        return Leftover(fd, header, mapped, held)
    finally:
        if not kept:
            os.close(fd)


def retire_descriptor(fd: int) -> None:
    """End all belief in an arena and free its memory."""
    _retire(fd)
    _free_all(fd)


def _open(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as refused:
        if refused.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise StartRefused(f"{path} is not a regular file; remove it") from refused
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StartRefused(f"{path} is not a regular file; remove it")
    return fd


def _retire(fd: int) -> None:
    """Magic and epoch lie where they do in every version: an older client may be attached."""
    if os.pread(fd, len(MAGIC), 0) == MAGIC:
        os.pwrite(fd, RETIRED_EPOCH, EPOCH_OFFSET)


def _free_all(fd: int) -> None:
    size_bytes = os.fstat(fd).st_size
    if size_bytes > mmap.PAGESIZE:
        punch_hole(fd, mmap.PAGESIZE, size_bytes - mmap.PAGESIZE)


def _usable(front: bytes, size_bytes: int, extent_bytes: int) -> ArenaHeader | None:
    """Its header, if pages of it can go on where they lie."""
    try:
        header = parse_header(front)
    except NotAnArena:
        return None
    fits = header.file_bytes == size_bytes and header.extent_bytes == extent_bytes
    return header if fits and header.board_slots and header.epoch != RETIRED_EPOCH else None


def _held(fd: int, header: ArenaHeader) -> dict[int, list[Held]]:
    """What the board shows of extents that have memory."""
    nbytes = Layout(header.board_slots).nbytes
    board = os.pread(fd, nbytes, header.board_offset)
    turns = os.pread(fd, header.turns_bytes, header.turns_offset)
    shown = survey(
        board,
        header.board_slots,
        extent_bytes=header.extent_bytes,
        extents=header.extent_count,
    )
    return {extent: rows for extent, rows in shown.items() if has_memory(_turn(turns, extent))}


def _turn(turns: bytes, extent: int) -> int:
    return int.from_bytes(turns[extent * TURN_BYTES : (extent + 1) * TURN_BYTES], "little")
