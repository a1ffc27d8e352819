"""A second thread for copies that are long enough to share.

One thread's memmove gets about half of what the memory gives to two (`python -m bench store`). So a
long copy is cut into chunks which two threads take in turn: the caller, and one that waits for such
calls. Where the second comes late the caller has copied the most or all of it by itself. Whether
two are faster depends on what else runs here: on busy cores they are slower. So both ways are
timed, and now and then the slower one is tried again.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from onggi.clock import Clock, monotonic
from onggi.copies import copy

SHARED_FROM_BYTES: Final = 4 * 1024 * 1024
"""Some 0.7 ms of copying: a fifth of it is won. Less than this would go for waking a thread, and
for code that is in no cache."""

CHUNK_BYTES: Final = 512 * 1024
"""Some 100 us: how much later than the other either of the two may be done."""

TRY_BOTH: Final = 8
"""First copies of a size, which go both ways in turn: any single one may have had bad luck."""

TRY_AGAIN: Final = 16
"""After that one in so many goes the way that was slower of late."""

WEIGHT: Final = 0.5
"""Of the newest time of a way in the mean of its times: what runs beside it changes, and the slower
way is not tried often."""

LOOK_AGAIN_S: Final = 1.0
"""Of one who waits for the second thread: that is told to it, and this is for a word that was lost
to an interrupt."""

Move = tuple[int, int, int]
"""(to address, from address, bytes)."""

Mover = Callable[[Sequence[Move], Callable[[], bool]], bool]
"""move() or alone()."""


class _Job:
    """One call's copies, taken from `left` by both threads. Once that is empty nobody begins."""

    __slots__ = ("_may", "_over", "_pid", "fault", "helped", "left", "shared", "whole")

    def __init__(self, moves: Sequence[Move], may: Callable[[], bool]) -> None:
        self._may = may
        self._pid = os.getpid()
        self.left = deque(
            (to + at, source + at, min(CHUNK_BYTES, nbytes - at))
            for to, source, nbytes in moves
            for at in range(0, nbytes, CHUNK_BYTES)
        )
        self.whole = True
        self.shared = False
        """The second thread copies, or is about to look whether there is something left."""
        self.helped = False
        """It has ended."""
        self._over = allocate_lock()
        self._over.acquire()
        self.fault: BaseException | None = None

    def work(self) -> None:
        take, may = self.left.popleft, self._may
        while self.left:
            if not may():
                self.whole = False
                self.left.clear()
            try:
                to, source, nbytes = take()
            except IndexError:  # the other was faster
                return
            copy(to, source, nbytes)

    def help(self) -> None:
        """On the second thread."""
        self.shared = True
        try:
            self.work()
        except BaseException as fault:  # noqa: BLE001  the caller's to raise
            self.fault = fault
        finally:
            self.helped = True
            self._over.release()

    def settle(self) -> None:
        """Until nothing of this is being copied; once more is nothing. An interrupt waits for it
        and is raised then: the pages go to somebody else next. One that forked leaves the second
        thread to the parent, and the child without what that had taken."""
        interrupted: BaseException | None = None
        while True:
            try:
                self.left.clear()
                while self.shared and not self.helped:
                    if self._pid != os.getpid():
                        self.whole = False
                        break
                    self._over.acquire(timeout=LOOK_AGAIN_S)
                break
            except BaseException as interrupt:  # noqa: BLE001  raised below
                interrupted = interrupt
        if interrupted is not None:
            raise interrupted


class _Ways:
    """How long a byte takes alone and shared, of copies of about one size."""

    def __init__(self) -> None:
        self._took_s = {True: 0.0, False: 0.0}
        self._copies = 0

    def shared(self) -> bool:
        """Which way the next one goes."""
        self._copies += 1
        if self._copies <= TRY_BOTH:
            return self._copies % 2 == 0
        shared = self._took_s[True] < self._took_s[False]
        return shared == bool(self._copies % TRY_AGAIN)

    def note(self, *, shared: bool, byte_s: float) -> None:
        before = self._took_s[shared]
        self._took_s[shared] = before + WEIGHT * (byte_s - before) if before else byte_s


class Crew:
    """One second thread. Who calls while it is wanted by another copies alone."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._now_s = clock
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._last: _Job | None = None
        self._thread: threading.Thread | None = None
        self._ways: dict[int, _Ways] = {}
        """By the power of two that a copy's bytes are just below: some twenty."""

    def move(self, moves: Sequence[Move], nbytes: int, may: Callable[[], bool]) -> bool:
        """See move()."""
        last = self._last
        if not self._jobs.empty() or (last is not None and last.left):
            return alone(moves, may)
        if self._thread is None and not self._hire():
            return alone(moves, may)
        ways = self._ways.setdefault(nbytes.bit_length(), _Ways())
        shared, began_s = ways.shared(), self._now_s()
        whole = self._share(_Job(moves, may)) if shared else alone(moves, may)
        if whole:  # what was broken off tells nothing of either way
            ways.note(shared=shared, byte_s=(self._now_s() - began_s) / nbytes)
        return whole

    def _hire(self) -> bool:
        """False: there is no thread to be had, as at a limit on them or at the process's end."""
        thread = threading.Thread(target=self._run, name="onggi-copies", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _share(self, job: _Job) -> bool:
        """An interrupt may come at any step of this, between two lines too: so it is settled twice,
        the second time for one that came on the way into the first."""
        try:
            try:
                self._last = job
                self._jobs.put(job)
                job.work()
            finally:
                job.settle()
        finally:
            job.settle()
            self._last = None  # it holds on to the caller's arena
        if job.fault is not None:
            raise job.fault
        return job.whole

    def _run(self) -> None:
        while True:
            self._jobs.get().help()


_crew = Crew()


def _begin_anew() -> None:
    """In a forked child: the second thread is the parent's."""
    global _crew  # noqa: PLW0603  a process has one, and a fork makes another process
    _crew = Crew()


os.register_at_fork(after_in_child=_begin_anew)


def alone(moves: Sequence[Move], may: Callable[[], bool]) -> bool:
    """move() on this thread."""
    for to, source, nbytes in moves:
        if not may():
            return False
        copy(to, source, nbytes)
    return True


def move(moves: Sequence[Move], may: Callable[[], bool]) -> bool:
    """Copy all of these, in no order. False: `may`, which is asked before each and between parts of
    long ones, said no, and some may have been copied. On return nothing is being copied any more.
    """
    nbytes = sum(length for _, _, length in moves)
    long = nbytes >= SHARED_FROM_BYTES and nbytes >= len(moves) * CHUNK_BYTES // 4
    if long and len(os.sched_getaffinity(0)) > 1 and not _gives_way():
        return _crew.move(moves, nbytes, may)
    return alone(moves, may)


def _gives_way() -> bool:
    """Whether this thread runs behind the process's others, as one that saves does: the second
    thread would not."""
    mine, usual = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, os.getpid())
    return mine > usual
