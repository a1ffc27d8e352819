"""Make, map and retire the arena file.

A client may hold the previous agent's file mapped while this agent starts. So the old file is
retired in an order that can only turn its loads into failures, never into wrong bytes: its epoch
is zeroed first, then its name goes, and only then is a new file made under a temporary name and
renamed. Sealed pages of an agent that died move into the new file as it is touched (leftover).
"""

import errno
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onggi_core.arena_header import (
    EXTENTS_MAX,
    RETIRED_EPOCH,
    TURNS_OFFSET,
    ArenaHeader,
    copy_max_bytes,
    has_memory,
)
from onggi_core.board.survey import Held
from onggi_core.quantity import spell_bytes
from onggi_sidecar.arena.holes import punch_hole
from onggi_sidecar.arena.huge import HUGE_BYTES, Asked, HugePages
from onggi_sidecar.arena.leftover import Leftover, discard, retire_descriptor, take_leftover
from onggi_sidecar.errors import StartRefused
from onggi_sidecar.group import give_to_group

ARENA_NAME: Final = "arena"
ARENA_MODE: Final = 0o660
"""Owner and the shared group read and write; an engine maps the file read-write to store."""

SPARE_COPIES: Final = 2
"""Left free in the volume, in a client's largest copies: one that was stopped in the middle, and
goes on after the agent has died and another has its place, touches what was the old arena anew. In
a volume without room the kernel ends it with SIGBUS. 16 MiB, or a 32nd of a small volume."""

_TEMPORARY_SUFFIX: Final = ".new"
_TOUCH_STEP_BYTES: Final = 1024 * 1024
"""Zeros written at once where pages are small: large enough to cost one system call per 1 MiB,
small enough that a stop request waits for well under a millisecond's worth of memory."""

_BLOCK_BYTES: Final = 512
"""What st_blocks counts in."""

_ZEROS: Final = bytes(_TOUCH_STEP_BYTES)


@dataclass(slots=True, weakref_slot=True)
class ArenaFile:
    """The agent's own arena. `map` covers the whole file, so wire offsets index it directly.

    The file is as long as the largest budget and sparse: only touched extents take memory. The
    mapping is never closed while the process lives: I/O threads may still write into it.
    turns: those of the header's table, u32 [extents], written by the toucher's thread alone, as
    huge is used.
    """

    path: Path
    fd: int
    header: ArenaHeader
    map: mmap.mmap
    turns: memoryview
    huge: HugePages
    leftover: Leftover | None = None
    """Of an agent that died: used by the toucher's thread until all of it has moved."""

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.fd).atexit = False  # when no thread has this any more

    @property
    def board(self) -> memoryview:
        """What clients read by themselves, uint8 [bytes]; the engine's to write."""
        begin = self.header.board_offset
        return memoryview(self.map)[begin : self.header.front_bytes]

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview:
        """Arena memory for direct I/O, [length] uint8, valid as long as the process."""
        return memoryview(self.map)[offset_bytes : offset_bytes + length_bytes]

    def extent_offset_bytes(self, extent: int) -> int:
        return self.header.data_offset_bytes + extent * self.header.extent_bytes

    def touch_step(self, extent: int, step: int) -> None:
        """Make one step's pages resident and charged to this process's cgroup.

        The space is reserved before it is written, so a full volume is an ENOSPC here and can
        never be a SIGBUS later. Raises OSError (ENOSPC, ENOMEM).
        """
        step_bytes, old = self._touch_step_bytes, self.leftover
        begin = step * step_bytes
        piece = old.take(extent, begin, step_bytes) if old is not None else b""
        self._make_resident(self.extent_offset_bytes(extent) + begin, step_bytes)
        if (
            piece
            and os.pwrite(self.fd, piece, self.extent_offset_bytes(extent) + begin) < step_bytes
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _make_resident(self, offset: int, step_bytes: int) -> None:
        if step_bytes == HUGE_BYTES:
            os.pwrite(self.fd, _ZEROS[: mmap.PAGESIZE], offset)  # nothing becomes no huge page
            if self.huge.make(offset):
                return
        os.posix_fallocate(self.fd, offset, step_bytes)
        for done in range(0, step_bytes, _TOUCH_STEP_BYTES):
            os.pwrite(self.fd, _ZEROS, offset + done)

    def inherited(self, extent: int) -> list[Held]:
        """What moved into an extent that is touched now; told once."""
        return self.leftover.held.pop(extent, []) if self.leftover is not None else []

    def forget_leftover(self) -> None:
        """What has not moved by now is not wanted."""
        if self.leftover is not None:
            old, self.leftover = self.leftover, None
            old.close()

    @property
    def touch_steps(self) -> int:
        return self.header.extent_bytes // self._touch_step_bytes

    @property
    def _touch_step_bytes(self) -> int:
        return _TOUCH_STEP_BYTES if self.header.extent_bytes % HUGE_BYTES else HUGE_BYTES

    @property
    def ready_bytes(self) -> int:
        """Of the extents that have memory."""
        return sum(map(has_memory, self.turns)) * self.header.extent_bytes

    def has_memory(self, extent: int) -> bool:
        return has_memory(self.turns[extent])

    def publish(self, extent: int) -> None:
        """Tell clients that an extent is touched; the engine learns it by event."""
        self.turns[extent] += 1

    def release_extent(self, extent: int) -> None:
        """Give back what an extent has of memory. Clients are told first, so that none fills its
        page table under a hole."""
        if has_memory(self.turns[extent]):
            self.turns[extent] += 1
        punch_hole(self.fd, self.extent_offset_bytes(extent), self.header.extent_bytes)

    def sweep(self) -> None:
        """Free what was touched of extents without memory: a reader that comes late makes pages of
        zeros there."""
        used_bytes = os.fstat(self.fd).st_blocks * _BLOCK_BYTES
        if used_bytes > _front_bytes(self.header) + self.ready_bytes:
            for extent, turn in enumerate(self.turns):
                if not has_memory(turn):
                    self.release_extent(extent)

    def retire(self) -> None:
        """Invalidate, free, unlink: what a clean end leaves is nothing."""
        retire_descriptor(self.fd)
        self.path.unlink(missing_ok=True)


def create_arena(
    folder: Path,
    *,
    size_bytes: int,
    extent_bytes: int,
    epoch: bytes,
    hugepages: Asked = Asked.AUTO,
) -> ArenaFile:
    """Take over what an earlier agent left at the path and make this agent's file.

    size_bytes is cut down to whole extents and to what the volume can hold at all (of what lies in
    front of the data only the pages of header, turns and board take room); nothing is touched yet.
    Raises StartRefused when not one extent fits, naming both sizes.
    """
    path = folder / ARENA_NAME
    leftover = take_leftover(path, extent_bytes)
    discard(path.with_suffix(_TEMPORARY_SUFFIX))
    room_bytes = volume_room_bytes(folder) + (leftover.memory_bytes if leftover else 0)
    extents = extents_within(size_bytes, extent_bytes, room_bytes)
    if extents < 1:
        front_bytes = _front_of(size_bytes, extent_bytes)
        raise StartRefused(
            f"the arena needs at least one extent of {spell_bytes(extent_bytes)} plus "
            f"{spell_bytes(front_bytes)} in front of it, and memory is {spell_bytes(size_bytes)}, "
            f"but {folder} has room for {spell_bytes(room_bytes)}; make that volume larger (a "
            "container's /dev/shm: --shm-size), or lower memory and extent"
        )
    header = ArenaHeader.with_board(epoch, extent_bytes, extents)
    temporary = path.with_suffix(_TEMPORARY_SUFFIX)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, ARENA_MODE)
    os.fchmod(fd, ARENA_MODE)  # the umask must not take the group's right to map it
    give_to_group(temporary)
    os.ftruncate(fd, header.file_bytes)
    os.posix_fallocate(fd, 0, _front_bytes(header))
    os.pwrite(fd, header.pack(), 0)
    mapped = mmap.mmap(fd, header.file_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    turns = memoryview(mapped)[TURNS_OFFSET : TURNS_OFFSET + header.turns_bytes].cast("I")
    temporary.rename(path)
    return ArenaFile(path, fd, header, mapped, turns, HugePages(fd, hugepages), leftover)


def extents_within(size_bytes: int, extent_bytes: int, room_bytes: int) -> int:
    """Extents of an arena that is to be so large, on a volume with so much room: 0 or more."""
    spare_bytes = SPARE_COPIES * copy_max_bytes(room_bytes)
    left_bytes = room_bytes - _front_of(size_bytes, extent_bytes) - spare_bytes
    return max(0, min(size_bytes // extent_bytes, left_bytes // extent_bytes, EXTENTS_MAX))


def _front_of(size_bytes: int, extent_bytes: int) -> int:
    asked = min(size_bytes // extent_bytes, EXTENTS_MAX)
    return _front_bytes(ArenaHeader.with_board(RETIRED_EPOCH, extent_bytes, asked))


def _front_bytes(header: ArenaHeader) -> int:
    """Memory in front of the data: the pages of header, turns and board."""
    return -(-header.front_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def volume_room_bytes(folder: Path) -> int:
    """Bytes the volume could give to the arena now: free to us, our own leftovers gone."""
    volume = os.statvfs(folder)
    return volume.f_bavail * volume.f_frsize
