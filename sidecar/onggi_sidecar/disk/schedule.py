"""Which waiting job a free disk thread takes: pure, stepped by the workers under their lock.

Somebody waits for a load, nobody for the rest. So loads go first, threads are kept free for the
next ones, and few writes run beside loads. A disk that is read all day must be written to as well:
a burst of loads has it for itself, and after that one call in a few is a write. Calls are counted
and no clock is asked, so that the shares are the same on a fast disk and on a slow one.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

THREADS: Final = 12
"""Calls at once. Four keep a local NVMe busy with transfers of a megabyte. Of a writing thread's
time two fifths go to checksums, records and their turn with the interpreter, more beside a busy
plane: with ten of them, beside those kept for loads, it is not the disk that waits."""
LOAD_THREADS_MIN: Final = 2
"""Threads that nothing but loads may take: the next load begins at once, whatever runs."""


class Queue(enum.IntEnum):
    LOAD = 0
    PREFETCH = 1
    WRITE = 2
    UPKEEP = 3
    """The tier's own: a segment made ahead or removed, uses written down."""


QUEUE_MAX: Final = {Queue.LOAD: 1024, Queue.PREFETCH: 256, Queue.WRITE: 256, Queue.UPKEEP: 1}
"""Jobs waiting. 1,024 reads of a megabyte are half a second of a fast disk: past that a load is
better computed. Pages of waiting writes are pinned in the arena: few, so that a slow disk cannot
hold it all."""
PREFETCHES_AT_ONCE: Final = 1
"""None begins while a load waits or runs: a hint costs a load at most the read it is in."""
WRITES_BESIDE_LOADS: Final = 1
"""A read behind a queue of writes waits for all of them in the device."""
BURST_LOADS: Final = 32
"""Loads that go before a write that waits: two requests of 16 MiB, some 30 ms of a fast disk."""
LOADS_A_WRITE: Final = 4
"""From then on each so many loads are followed by a write, until writes have caught up with the
loads that went before them: a fifth of the calls and, since a write may be twice as
long, up to a third of the bytes are theirs however much is read."""
WRITES_OWED: Final = 2
"""Of those at once: writes that hang or are slow never have more of the threads."""


@dataclass(slots=True, eq=False)
class Job:
    """Work for an I/O thread: `run` does it and reports, `abandon` reports that it was not done.

    Both report by themselves, so a job's end is heard of exactly once. number: the engine's.
    """

    number: int
    queue: Queue
    run: Callable[[], None]
    abandon: Callable[[], None]
    deadline_s: float


class Schedule:
    """The queues, and what runs. Every job added is either taken or expires or is cleared."""

    def __init__(self, threads: int) -> None:
        self._background_max = max(1, threads - LOAD_THREADS_MIN)
        self._waiting: dict[Queue, deque[Job]] = {queue: deque() for queue in Queue}
        self._running = dict.fromkeys(Queue, 0)
        self._held_back = 0
        """Loads begun while a write waited, less LOADS_A_WRITE for each write begun since."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job) -> bool:
        """Queue it; False when its queue is full."""
        waiting = self._waiting[job.queue]
        if len(waiting) >= QUEUE_MAX[job.queue]:
            return False
        waiting.append(job)
        return True

    def hurry(self, number: int, deadline_s: float) -> None:
        """Somebody waits for that prefetch now: it becomes a load, with a load's time. Nothing
        happens to one that has begun, ended, or finds the loads' queue full."""
        for job in self._waiting[Queue.PREFETCH]:
            if job.number == number:
                self._waiting[Queue.PREFETCH].remove(job)
                job.queue, job.deadline_s = Queue.LOAD, deadline_s
                if not self.add(job):
                    job.queue = Queue.PREFETCH
                    self._waiting[Queue.PREFETCH].appendleft(job)
                return

    def take(self) -> Job | None:
        """The job a thread that is free now should run, marked as running; None: it should wait."""
        queue = self._pick()
        if queue is None:
            return None
        self._running[queue] += 1
        job = self._waiting[queue].popleft()
        if queue is Queue.WRITE:
            self._held_back = max(0, self._held_back - LOADS_A_WRITE)
        if not self._waiting[Queue.WRITE]:
            self._held_back = 0
        elif queue is Queue.LOAD:
            self._held_back = min(self._held_back + 1, BURST_LOADS + LOADS_A_WRITE)
        return job

    def may_take(self) -> bool:
        """Whether another free thread would get a job, too."""
        return self._pick() is not None

    def ended(self, job: Job) -> None:
        self._running[job.queue] -= 1

    def expired(self, now_s: float) -> list[Job]:
        """Jobs past their deadline, no longer queued: to be abandoned."""
        late = []
        for waiting in self._waiting.values():
            while waiting and waiting[0].deadline_s < now_s:
                late.append(waiting.popleft())
        return late

    def next_deadline_s(self) -> float | None:
        """When `expired` is due; jobs of one queue are in order of their deadlines."""
        return min((jobs[0].deadline_s for jobs in self._waiting.values() if jobs), default=None)

    def clear(self) -> list[Job]:
        """Everything that waits, no longer queued: to be abandoned."""
        left = [job for waiting in self._waiting.values() for job in waiting]
        for waiting in self._waiting.values():
            waiting.clear()
        return left

    def _pick(self) -> Queue | None:
        if self._write_is_owed:
            return Queue.WRITE
        if self._waiting[Queue.LOAD]:
            return Queue.LOAD
        background = sum(self._running.values()) - self._running[Queue.LOAD]
        if background >= self._background_max:
            return None
        return next(self._allowed(), None)

    @property
    def _write_is_owed(self) -> bool:
        return (
            self._held_back >= BURST_LOADS
            and bool(self._waiting[Queue.WRITE])
            and self._running[Queue.WRITE] < WRITES_OWED
        )

    def _allowed(self) -> Iterator[Queue]:
        """Queues of work that nobody waits for and that may take a thread, most urgent first."""
        loading = self._running[Queue.LOAD]
        limits = {
            Queue.PREFETCH: 0 if loading else PREFETCHES_AT_ONCE,
            Queue.WRITE: WRITES_BESIDE_LOADS if loading else self._background_max,
            Queue.UPKEEP: 1,
        }
        for queue, limit in limits.items():
            if self._waiting[queue] and self._running[queue] < limit:
                yield queue
