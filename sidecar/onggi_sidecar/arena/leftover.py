"""What an agent that died left in memory: its arena, of which the sealed pages go on into the next.

The old file is never used again as it is: a client of the dead agent may be in the middle of a copy
into a page of it, for as long as it likes. So its epoch is zeroed first, which ends all belief in
it, and then what its board shows is moved into the new file, a step at a time: read, freed in the
old file, written to the new. The two arenas together never take more than one.

Until all of it has moved it keeps a name, so that the next agent can free what is left should this
one be killed meanwhile: clients that map a file without a name would keep its memory.
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
    OtherArenaVersion,
    has_memory,
    parse_header,
)
from onggi_core.board.layout import Layout
from onggi_core.board.survey import Held, survey
from onggi_core.quantity import spell_bytes
from onggi_sidecar.arena.holes import punch_hole
from onggi_sidecar.errors import StartRefused
from onggi_sidecar.log import warn

_OLD_SUFFIX: Final = ".old"
_BLOCK_BYTES: Final = 512
"""What st_blocks counts in."""


@dataclass(slots=True)
class Leftover:
    """An old arena's file, believed by nobody. held: by extent, what is worth keeping of it."""

    path: Path
    fd: int
    header: ArenaHeader
    held: dict[int, list[Held]]

    @property
    def memory_bytes(self) -> int:
        """What its pages take until they have moved."""
        return os.fstat(self.fd).st_blocks * _BLOCK_BYTES

    def take(self, extent: int, begin: int, nbytes: int) -> bytes:
        """A piece of an extent, whose memory is free then; b"" where nothing of the extent is to be
        kept. An extent that is not whole any more is not kept either."""
        if extent >= self.header.extent_count:
            return b""
        at = self.header.data_offset_bytes + extent * self.header.extent_bytes + begin
        piece = os.pread(self.fd, nbytes, at) if extent in self.held else b""
        if len(piece) < nbytes and self.held.pop(extent, None) is not None:
            piece = b""
        punch_hole(self.fd, at, nbytes)
        return piece

    def close(self) -> None:
        """Free what is left of it."""
        self.held = {}
        _free_all(self.fd)
        self.path.unlink(missing_ok=True)
        os.close(self.fd)


def take_leftover(path: Path, extent_bytes: int) -> Leftover | None:
    """The arena found at `path`, under another name and no longer believed by any client. None
    where there is none, or none with a page that could be kept: then all of its memory is free.

    Only a regular file is touched, and never through a symbolic link: the folder is shared with
    the engine's container. Raises StartRefused.
    """
    old = path.with_suffix(_OLD_SUFFIX)
    discard(old)
    fd = _open(path)
    if fd is None:
        return None
    kept = False
    try:
        size_bytes = os.fstat(fd).st_size
        front = os.pread(fd, HEADER_BYTES, 0)
        _retire(fd)
        header = _usable(path, front, size_bytes, extent_bytes)
        held = _held(fd, header) if header is not None else {}
        if header is None or not held:
            _free_all(fd)
            path.unlink(missing_ok=True)
            return None
        punch_hole(fd, mmap.PAGESIZE, header.data_offset_bytes - mmap.PAGESIZE)
        path.rename(old)
        kept = True
        return Leftover(old, fd, header, held)
    finally:
        if not kept:
            os.close(fd)


def discard(path: Path) -> None:
    """Free an arena's memory and name, whatever it holds. Raises StartRefused."""
    if (fd := _open(path)) is not None:
        try:
            retire_descriptor(fd)
        finally:
            os.close(fd)
        path.unlink(missing_ok=True)


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


def _usable(path: Path, front: bytes, size_bytes: int, extent_bytes: int) -> ArenaHeader | None:
    """Its header, if pages of it can go on where they lie. Where somebody changed something since,
    it is told: a cold start is no riddle then."""
    try:
        header = parse_header(front)
    except OtherArenaVersion as other:
        _given_up(path, f"an agent of another version made it ({other})")
        return None
    except NotAnArena:
        return None
    if header.extent_bytes != extent_bytes:
        theirs, ours = spell_bytes(header.extent_bytes), spell_bytes(extent_bytes)
        _given_up(path, f"extent was {theirs} then, and is {ours} now")
        return None
    whole = header.file_bytes == size_bytes and header.board_slots
    return header if whole and header.epoch != RETIRED_EPOCH else None


def _given_up(path: Path, why: str) -> None:
    warn(
        "arena_given_up",
        f"what the last agent left in memory, at {path}, is not taken over: {why}; what it had on"
        " disk is found all the same",
    )


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
