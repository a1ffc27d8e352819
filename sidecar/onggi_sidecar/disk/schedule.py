"""Which waiting job a free disk thread takes: pure, stepped by the workers under their lock.

Somebody waits for a load, nobody for the rest. So loads go first, a thread is kept free for the
next one, and few writes run beside loads; but a write that has waited long gets a thread, or a
disk that is read all day would never be written to.
"""

import enum
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

THREADS: Final = 6
"""Calls at once. Four keep a local NVMe busy with transfers of a megabyte; of a thread's time a
tenth goes to checksums and records, so that takes five, and one may hang."""
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
WRITE_PATIENCE_S: Final = 0.1
"""A write that waited so long gets a thread though loads wait: one of THREADS is the share of
writes, so a disk at its limit gives a sixth of its calls to them and the rest to loads."""


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
    queued_s: float = 0.0


class Schedule:
    """The queues, and what runs. Every job added is either taken or expires or is cleared."""

    def __init__(self, threads: int) -> None:
        self._background_max = max(1, threads - LOAD_THREADS_MIN)
        self._waiting: dict[Queue, deque[Job]] = {queue: deque() for queue in Queue}
        self._running = dict.fromkeys(Queue, 0)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job, now_s: float) -> bool:
        """Queue it; False when its queue is full."""
        waiting = self._waiting[job.queue]
        if len(waiting) >= QUEUE_MAX[job.queue]:
            return False
        job.queued_s = now_s
        waiting.append(job)
        return True

    def hurry(self, number: int, now_s: float, deadline_s: float) -> None:
        """Somebody waits for that prefetch now: it becomes a load, with a load's time. Nothing
        happens to one that has begun, ended, or finds the loads' queue full."""
        for job in self._waiting[Queue.PREFETCH]:
            if job.number == number:
                self._waiting[Queue.PREFETCH].remove(job)
                job.queue, job.deadline_s = Queue.LOAD, deadline_s
                if not self.add(job, now_s):
                    job.queue = Queue.PREFETCH
                    self._waiting[Queue.PREFETCH].appendleft(job)
                return

    def take(self, now_s: float) -> Job | None:
        """The job a thread that is free now should run, marked as running; None: it should wait."""
        queue = self._pick(now_s)
        if queue is None:
            return None
        self._running[queue] += 1
        return self._waiting[queue].popleft()

    def may_take(self, now_s: float) -> bool:
        """Whether another free thread would get a job, too."""
        return self._pick(now_s) is not None

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

    def _pick(self, now_s: float) -> Queue | None:
        writes = self._waiting[Queue.WRITE]
        if (
            writes
            and not self._running[Queue.WRITE]
            and now_s - writes[0].queued_s > WRITE_PATIENCE_S
        ):
            return Queue.WRITE
        if self._waiting[Queue.LOAD]:
            return Queue.LOAD
        background = sum(self._running.values()) - self._running[Queue.LOAD]
        if background >= self._background_max:
            return None
        return next(self._allowed(), None)

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
