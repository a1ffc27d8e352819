"""The arena as a client sees it: a file of the agent's, mapped read-write, checked before use.

The agent is the only one that makes, grows or retires the file. The client checks the header when
it maps, and the epoch again after every copy: an agent that ends or restarts takes the epoch back
before it frees a page, so bytes read before an unchanged epoch are the bytes that were pinned.

An agent gives memory back while it lives, extent by extent. Reading such an extent would take
memory again, and charge it to this process, so what is done ahead of use (page table, DMA) is done
only where the extent's turn says that it has memory, and again after each change of its turn.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from onggi.advice import OTHER_VERSION
from onggi.copies import Piece, cut, merged
from onggi.crew import Move, Mover, alone, move
from onggi_core.arena_header import (
    EPOCH_BYTES,
    EPOCH_OFFSET,
    HEADER_BYTES,
    NotAnArena,
    OtherArenaVersion,
    copy_max_bytes,
    has_memory,
    parse_header,
)
from onggi_core.board.reader import BoardReader

_EPOCH: Final = slice(EPOCH_OFFSET, EPOCH_OFFSET + EPOCH_BYTES)

POPULATE_STEP_BYTES: Final = 4 * 1024 * 1024
"""Page-table entries made at once, on the first use of a stretch: about 0.3 ms of work. A whole
64 MiB extent at once would hold up the first request for 5 ms."""

_MADV_POPULATE_READ: Final = 22
"""Linux 5.14+. Without it each 4 KiB page takes a fault of its own at the first write, which makes
a first copy ten times slower than the next. On tmpfs the entries it makes can be written to as well
(nothing there waits to be written back), and a fault makes sixteen of them: 0.6 ms for 4 MiB where
MADV_POPULATE_WRITE took 1.1 to 1.7, and the first write no slower than the next."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class ArenaRefused(Exception):
    """The file is not the arena that the agent announced. The message names field and values."""


class Stream(Protocol):
    """The connection that an arena's pages are held by: a Channel."""

    closed: bool


class Arena:
    """One mapping of one agent's arena.

    It is never closed by hand: views handed out keep the mapping alive, and it goes when the last
    of them goes. A closed mapping under a live view would end the engine with a signal.
    """

    def __init__(
        self, path: str, *, epoch: bytes, file_bytes: int, data_offset: int, extent_bytes: int
    ) -> None:
        """Map `path`. Raises ArenaRefused for another file than announced, OSError if absent."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            if size < file_bytes or file_bytes <= data_offset:
                raise ArenaRefused(f"{path} has {size} bytes; the agent announced {file_bytes}")
            self._map = mmap.mmap(fd, file_bytes)
        finally:
            os.close(fd)
        self.path = path
        self.epoch = epoch
        self.file_bytes = file_bytes
        self.copy_max_bytes = copy_max_bytes(file_bytes - data_offset)
        self._data_offset = data_offset
        self._extent_bytes = max(extent_bytes, mmap.PAGESIZE)
        self._step_bytes = min(POPULATE_STEP_BYTES, max(extent_bytes, mmap.PAGESIZE))
        self._steps_per_extent = max(1, self._extent_bytes // self._step_bytes)
        self._populated: dict[int, int] = {}
        """step -> the turn of its extent when its page table was filled."""
        self._seen_turns = b""
        self._next_extent = 0
        """Where populate_next goes on; from the first extent again when a turn has changed."""
        self._can_populate = True
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._users = 0
        self._given_up = False
        self.when_idle: Callable[[], None] = lambda: None
        """Called after the last of the copies that ran at one time."""
        self._first_byte = ctypes.c_char.from_buffer(self._map)  # keeps the mapping in place
        self.address = ctypes.addressof(self._first_byte)
        self.board: BoardReader | None = None
        self._turns = self._check()

    def _check(self) -> memoryview:
        """The turns of the extents, u32 [extents]."""
        try:
            header = parse_header(self._map[:HEADER_BYTES])
        except OtherArenaVersion as error:
            raise ArenaRefused(f"{self.path}: {error}; {OTHER_VERSION}") from error
        except NotAnArena as error:
            raise ArenaRefused(f"{self.path}: {error}") from error
        if header.epoch != self.epoch:
            raise ArenaRefused(
                f"{self.path} has epoch {header.epoch.hex()}, not {self.epoch.hex()}"
            )
        if (header.file_bytes, header.extent_bytes) != (self.file_bytes, self._extent_bytes):
            raise ArenaRefused(
                f"{self.path} has extents of {header.extent_bytes} bytes in {header.file_bytes}; "
                f"the agent announced {self._extent_bytes} in {self.file_bytes}"
            )
        whole = memoryview(self._map)
        if header.board_slots:
            self.board = BoardReader(self._map, header.board_slots, header.board_offset)
        begin = header.turns_offset
        return whole[begin : begin + header.turns_bytes].cast("I")

    def is_alive(self) -> bool:
        """False once the agent has taken this arena back."""
        return self._map[_EPOCH] == self.epoch

    @property
    def alive(self) -> bool:
        return self.is_alive()

    def view(self, offset: int, length_bytes: int) -> memoryview:
        """Bytes of the arena, uint8 [length_bytes]; keeps the mapping alive while it lives."""
        self.prepare(offset, length_bytes)
        return memoryview(self._map)[offset : offset + length_bytes]

    def whole(self) -> memoryview:
        """The file, uint8 [file_bytes], for a library that slices by itself: use only ranges that
        were offered. Keeps the mapping alive while it lives."""
        return memoryview(self._map)

    def extent_of(self, offset: int) -> int:
        """The number of the extent that an offset lies in."""
        return (offset - self._data_offset) // self._extent_bytes

    def extent_range(self, extent: int) -> tuple[int, int]:
        """Where an extent begins in the file, and its bytes."""
        return self._data_offset + extent * self._extent_bytes, self._extent_bytes

    def turns(self) -> bytes:
        """The turns of all extents, to compare with an earlier look."""
        return self._turns.tobytes()

    def turn_of(self, extent: int) -> int:
        """How often the extent was touched or given back; see onggi_core.arena_header."""
        return int(self._turns[extent])

    def copy_out(self, pieces: Iterable[Piece], mover: Mover = alone) -> bool:
        """Copy arena bytes to memory. False: the agent took the arena back, and what was copied
        is worth nothing. Raises ValueError outside the file, before a byte is copied. mover: `move`
        of onggi.crew to share a long copy with a second thread."""
        base = self.address
        moves = [(to, base + offset, nbytes) for offset, to, nbytes in self._ready(pieces)]
        return self._copy(moves, mover)

    def copy_in(self, pieces: Iterable[Piece], mover: Mover = alone) -> bool:
        """Copy memory into the arena. False: the agent took the arena back, nothing is kept.
        Raises ValueError outside the file, before a byte is copied. mover: as in copy_out()."""
        base = self.address
        moves = [(base + offset, source, nbytes) for offset, source, nbytes in self._ready(pieces)]
        return self._copy(moves, mover)

    def _copy(self, moves: Sequence[Move], mover: Mover) -> bool:
        """Before each it is looked whether the arena is the agent's: if not, its memory may be
        gone, and would come again when it is touched."""
        may = self._begin()
        try:
            return may and mover(moves, self.is_alive) and self.alive
        finally:
            self._end()

    def write(self, pieces: Sequence[Piece], stream: Stream) -> bool:
        """As copy_in(), in one flat function, of pieces that are joined and cut already. False too
        once the stream is closed that the pages are ours by. It is looked at when the copy
        counts as running, and whoever closes looks the other way round: one of the two sees it."""
        base, epoch, moves = self.address, self.epoch, []
        for offset, source, length in pieces:
            self.prepare(offset, length)
            moves.append((base + offset, source, length))
        with self._lock:
            self._users += 1
            may = not self._given_up
        try:
            whole = may and move(moves, lambda: not stream.closed and self._map[_EPOCH] == epoch)
            return whole and self._map[_EPOCH] == epoch
        finally:
            with self._lock:
                self._users -= 1
                if self._given_up:
                    self._idle.notify_all()
            if stream.closed:
                self.when_idle()

    def _begin(self) -> bool:
        """A copy runs, until _end(). False: the session was given up, so it must not begin."""
        with self._lock:
            self._users += 1
            return not self._given_up

    def _end(self) -> None:
        with self._lock:
            self._users -= 1
            idle = not self._users
            if self._given_up:  # nobody else waits
                self._idle.notify_all()
        if idle:
            self.when_idle()

    @property
    def in_use(self) -> bool:
        """Whether a copy runs now."""
        return self._users > 0

    def give_up(self) -> None:
        """No copy begins from here on: its pages are not this session's much longer."""
        with self._idle:
            self._given_up = True

    def await_idle(self, timeout_s: float) -> bool:
        """Until no thread copies from or into the arena."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._users, timeout_s)

    def prepare(self, offset: int, length_bytes: int) -> None:
        """Check a range and fill the page table under it, once a stretch.

        Name only ranges that the agent has offered: it touches a whole extent before it offers a
        page of it, so that nothing here is charged to this process. Raises ValueError outside the
        data part of the file.
        """
        if length_bytes < 1 or not self._data_offset <= offset <= self.file_bytes - length_bytes:
            raise ValueError(
                f"arena range {offset}+{length_bytes} is outside {self._data_offset} to "
                f"{self.file_bytes}, the data of {self.path}"
            )
        first = (offset - self._data_offset) // self._step_bytes
        last = (offset - self._data_offset + length_bytes - 1) // self._step_bytes
        for step in range(first, last + 1):
            turn = self._turns[step // self._steps_per_extent]
            if self._populated.get(step) != turn:
                self._populate(step, turn)

    def populate_next(self) -> bool:
        """Fill the page table under one more stretch that the agent has touched. False: nothing
        is left to do for now. For a thread with time on its hands: a first load then finds the
        page table filled, which saves it 0.2 to 0.4 ms a MiB."""
        if not self._can_populate:
            return False
        if (turns := self.turns()) != self._seen_turns:
            self._seen_turns, self._next_extent = turns, 0
        while self._next_extent < len(self._turns):
            turn = int(self._turns[self._next_extent])
            begin = self._next_extent * self._steps_per_extent
            for step in range(begin, begin + self._steps_per_extent) if has_memory(turn) else ():
                if self._populated.get(step) != turn:
                    self._populate(step, turn)
                    return True
            self._next_extent += 1
        return False

    def _ready(self, pieces: Iterable[Piece]) -> list[Piece]:
        joined = cut(merged(pieces), self.copy_max_bytes)
        for offset, _, length in joined:
            self.prepare(offset, length)
        return joined

    def _populate(self, step: int, turn: int) -> None:
        self._populated[step] = turn
        if not self._can_populate or not has_memory(turn):
            return
        begin = self._data_offset + step * self._step_bytes
        begin -= begin % mmap.PAGESIZE
        length = min(self._step_bytes, self.file_bytes - begin)
        if _libc.madvise(self.address + begin, length, _MADV_POPULATE_READ):
            self._can_populate = False  # an older kernel: faults come one by one, as without it
