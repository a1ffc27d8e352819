"""A few threads that carry out disk jobs, in the order of who waits for them.

Threads and not io_uring: a page is large enough that the system call is not what costs, and
Python releases the GIL for its length. A job that waited past its deadline is answered ABANDONED
without being begun; one that has begun is never given up, because the kernel may still write into
its page, so its page stays taken until it really ends.
"""

import enum
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

THREADS: Final = 4
"""Enough to keep a local NVMe busy with pages of a megabyte; more only fight for the cores."""


class Queue(enum.IntEnum):
    """Served lowest first."""

    LOAD = 0
    PREFETCH = 1
    WRITE = 2


QUEUE_MAX: Final = {Queue.LOAD: 1024, Queue.PREFETCH: 256, Queue.WRITE: 256}
"""Jobs waiting. 1,024 one-megabyte reads are half a second of a fast disk: past that a load is
better computed. Pages of waiting writes are pinned in the arena: few, so that a slow disk cannot
hold it all."""


class Job(NamedTuple):
    """Work for an I/O thread: `run` does it and reports, `abandon` reports that it was not done.

    Both report by themselves, so a job's end is heard of exactly once.
    """

    run: Callable[[], None]
    abandon: Callable[[], None]
    deadline_s: float


@dataclass(slots=True)
class WorkerCounts:
    """Since start: jobs done, jobs that waited too long, jobs that found the queue full."""

    done: int = 0
    late: int = 0
    refused: int = 0


class Workers:
    """The threads and their queues. Jobs run, and may be abandoned, on an I/O thread."""

    def __init__(self, clock: Callable[[], float], *, threads: int = THREADS) -> None:
        self.counts = WorkerCounts()
        self._clock = clock
        self._queues: dict[Queue, deque[Job]] = {queue: deque() for queue in Queue}
        self._wake = threading.Condition()
        self._stopping = False
        self._begun: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(n,), name=f"onggi-disk-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, queue: Queue, job: Job) -> None:
        """Queue a job, or abandon it here and now when its queue is full."""
        with self._wake:
            if len(self._queues[queue]) < QUEUE_MAX[queue] and not self._stopping:
                self._queues[queue].append(job)
                self._wake.notify()
                return
        self.counts.refused += 1
        job.abandon()

    @property
    def waiting(self) -> int:
        """Jobs not ended yet."""
        return sum(map(len, self._queues.values())) + len(self._begun)

    def stuck(self, *, longer_than_s: float) -> int:
        """Jobs begun and not back for longer than that: a disk that hangs."""
        since = self._clock() - longer_than_s
        return sum(begun < since for begun in list(self._begun.values()))

    def drain(self, *, deadline_s: float) -> None:
        """Wait until every job has ended, or until the deadline."""
        with self._wake:
            self._wake.wait_for(lambda: not self.waiting, max(0.0, deadline_s - self._clock()))

    def stop(self, *, deadline_s: float) -> int:
        """Abandon what is queued, wait for what runs until the deadline; answers what still runs.

        Threads are daemons: a hung disk cannot keep the process from ending.
        """
        with self._wake:
            self._stopping = True
            left = [job for queue in self._queues.values() for job in queue]
            for queue in self._queues.values():
                queue.clear()
            self._wake.notify_all()
        for job in left:
            job.abandon()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - self._clock()))
        return sum(thread.is_alive() for thread in self._threads)

    def _next(self, number: int) -> Job | None:
        """The next job in order of urgency, waiting for one; None at the end."""
        with self._wake:
            while not self._stopping:
                for queue in self._queues.values():
                    if queue:
                        job = queue.popleft()
                        self._begun[number] = self._clock()
                        return job
                self._wake.wait()
        return None

    def _ended(self, number: int) -> None:
        with self._wake:
            del self._begun[number]
            if not self.waiting:
                self._wake.notify_all()  # drain() waits among the threads

    def _run(self, number: int) -> None:
        while (job := self._next(number)) is not None:
            if self._begun[number] > job.deadline_s:
                self.counts.late += 1
                job.abandon()
            else:
                job.run()
                self.counts.done += 1
            self._ended(number)
