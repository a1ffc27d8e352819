"""A few threads that carry out disk jobs, in the order that the schedule says.

Threads and not io_uring: decision 0014. A job that waited past its deadline is answered ABANDONED
without being begun, even when every thread hangs; one that has begun is never given up, because
the kernel may still write into its page, so its page stays taken until it really ends.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from onggi_sidecar.disk.schedule import THREADS, Job, Queue, Schedule
from onggi_sidecar.log import LOG

WATCH_MARGIN_S: Final = 0.01
"""The watch wakes so much after a deadline, when it has certainly passed."""


@dataclass(slots=True)
class WorkerCounts:
    """Since start: jobs done, jobs that waited too long, jobs that found their queue full."""

    done: int = 0
    late: int = 0
    refused: dict[Queue, int] = field(default_factory=lambda: dict.fromkeys(Queue, 0))


class Workers:
    """The threads and their queues. Jobs run on an I/O thread; they are abandoned there, on the
    watch's thread, or where they are added."""

    def __init__(self, clock: Callable[[], float], *, threads: int = THREADS) -> None:
        self.counts = WorkerCounts()
        self.fell: Callable[[], None] = lambda: None
        """Called on an I/O thread when a job raised what no disk does: a bug."""
        self._clock = clock
        self._schedule = Schedule(threads)
        lock = threading.Lock()
        self._wake = threading.Condition(lock)
        self._watching = threading.Condition(lock)
        self._emptied = threading.Condition(lock)
        """For drain(), which would take a wake-up meant for a thread if it waited among them."""
        self._stopping = False
        self._begun: dict[int, float] = {}
        self._looks_again_s: float | None = None
        """The deadline that the watch sleeps towards."""
        self._threads = [
            threading.Thread(target=self._run, args=(n,), name=f"onggi-disk-{n}", daemon=True)
            for n in range(threads)
        ]
        self._watch = threading.Thread(target=self._watch_out, name="onggi-watch", daemon=True)
        for thread in (*self._threads, self._watch):
            thread.start()

    def add(self, job: Job) -> None:
        """Queue a job, or abandon it here and now when its queue is full."""
        with self._wake:
            if not self._stopping and self._schedule.add(job):
                self._rouse()
                if self._looks_again_s is None or self._looks_again_s > job.deadline_s:
                    self._watching.notify()
                return
            self.counts.refused[job.queue] += 1
        job.abandon()

    def hurry(self, number: int, *, deadline_s: float) -> None:
        """Somebody waits for that prefetch now."""
        with self._wake:
            self._schedule.hurry(number, deadline_s)
            self._rouse()

    @property
    def waiting(self) -> int:
        """Jobs not ended yet."""
        return self._schedule.waiting + len(self._begun)

    def stuck(self, *, longer_than_s: float) -> int:
        """Jobs begun and not back for longer than that: a disk that hangs."""
        since = self._clock() - longer_than_s
        return sum(begun < since for begun in list(self._begun.values()))

    def drain(self, *, deadline_s: float) -> None:
        """Wait until every job has ended, or until the deadline."""
        with self._emptied:
            self._emptied.wait_for(lambda: not self.waiting, max(0.0, deadline_s - self._clock()))

    def stop(self, *, deadline_s: float) -> int:
        """Abandon what is queued, wait for what runs until the deadline; answers what still runs.

        Threads are daemons: a hung disk cannot keep the process from ending.
        """
        with self._wake:
            self._stopping = True
            left = self._schedule.clear()
            self._wake.notify_all()
            self._watching.notify_all()
        _abandon(left)
        for thread in (*self._threads, self._watch):
            thread.join(max(0.0, deadline_s - self._clock()))
        return sum(thread.is_alive() for thread in self._threads)

    @property
    def ended(self) -> bool:
        """No thread runs any more."""
        return not any(thread.is_alive() for thread in (*self._threads, self._watch))

    def _next(self, number: int, ended: Job | None) -> Job | None:
        """After one job the next for a thread, waiting for it; None at the end."""
        with self._wake:
            if ended is not None:
                del self._begun[number]
                self._schedule.ended(ended)
                if not self.waiting:
                    self._emptied.notify_all()
            while not self._stopping:
                job = self._schedule.take()
                if job is not None:
                    self._begun[number] = self._clock()
                    self._rouse()
                    return job
                self._wake.wait()
        return None

    def _rouse(self) -> None:
        """Wake a thread that waits if it would get a job: one woken for nothing costs the others
        the interpreter."""
        if self._schedule.may_take():
            self._wake.notify()

    def _run(self, number: int) -> None:
        job: Job | None = None
        while (job := self._next(number, job)) is not None:
            if self._begun[number] > job.deadline_s:
                self.counts.late += 1
                job.abandon()
            else:
                self._do(job)

    def _do(self, job: Job) -> None:
        try:
            job.run()
        except Exception:  # noqa: BLE001  any bug: its page is given back, and the agent ends
            LOG.exception("a bug in a disk job")
            job.abandon()
            self.fell()
        else:
            self.counts.done += 1

    def _watch_out(self) -> None:
        """Abandon what waits past its deadline, though no thread comes back to take it."""
        while (late := self._late()) is not None:
            _abandon(late)

    def _late(self) -> list[Job] | None:
        """Jobs to be abandoned, waiting for some; None at the end."""
        with self._watching:
            while not self._stopping:
                now_s = self._clock()
                if late := self._schedule.expired(now_s):
                    self.counts.late += len(late)
                    if not self.waiting:
                        self._emptied.notify_all()
                    return late
                due_s = self._schedule.next_deadline_s()
                self._looks_again_s = due_s
                self._watching.wait(None if due_s is None else due_s - now_s + WATCH_MARGIN_S)
        return None


def _abandon(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.abandon()
