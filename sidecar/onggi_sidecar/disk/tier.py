"""The disk tier: the engine's runs carried out on files."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from onggi_core.engine.actions import ForgetPage, NoteUses, ReadRun, WriteRun
from onggi_core.engine.events import IoOutcome, ReadEnded, WriteEnded
from onggi_sidecar.disk.checksum import page_checksums
from onggi_sidecar.disk.outcome import classify
from onggi_sidecar.disk.schedule import Job, Queue
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES
from onggi_sidecar.disk.segments import Segments
from onggi_sidecar.disk.stretch import Stretch, read_stretch, write_stretch
from onggi_sidecar.disk.table import PageTable
from onggi_sidecar.disk.workers import Workers

SEAL_RESERVE_S: Final = 1.0
"""Of the time to stop in, kept for sealing the page table."""

TIMINGS_MAX: Final = 4096
"""Timings kept between two scrapes: at 15 s apart a disk of 270 runs a second loses none."""

USES_EVERY_S: Final = 30.0
"""How often last uses are written down: what a killed agent forgets of them."""


class PageMemory(Protocol):
    """Where pages lie in memory: the arena."""

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview: ...


@dataclass(slots=True)
class DiskCounts:
    """Since start, by class of fault. Bytes are those of pages really moved."""

    read_bytes: int = 0
    written_bytes: int = 0
    seconds: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=TIMINGS_MAX))
    """(read or write, how long the run took), until metrics takes them; the oldest go first."""
    faults: dict[IoOutcome, int] = field(default_factory=lambda: dict.fromkeys(IoOutcome, 0))
    """Pages by outcome, and faults of the tier's upkeep."""


class DiskTier:
    """Moves pages between arena and segments and keeps the page table in step.

    `ended` is called with each job's end, on some thread. Which place a block gets is the
    engine's business; that data comes before its record, and a checksum before a hit, is ours.
    """

    def __init__(
        self,
        *,
        table: PageTable,
        segments: Segments,
        memory: PageMemory,
        workers: Workers,
        ended: Callable[[WriteEnded | ReadEnded], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        io_deadline_s: float,
    ) -> None:
        self.counts = DiskCounts()
        self.workers = workers
        self.table = table
        self.segments = segments
        self._memory = memory
        self._ended = ended
        self._clock = clock
        self._wall_clock = wall_clock
        self._io_deadline_s = io_deadline_s
        self._uses_due_s = clock() + USES_EVERY_S
        self._tending = False
        self._releasing: set[int] = set()
        self._release_lock = threading.Lock()

    def write(self, action: WriteRun) -> None:
        deadline_s = self._clock() + self._io_deadline_s

        def end(outcomes: Sequence[IoOutcome], checksums: Sequence[bytes]) -> None:
            self._count(outcomes)
            self._ended(WriteEnded(action.job, tuple(outcomes), tuple(checksums)))

        def run() -> None:
            begun_s = self._clock()
            outcomes, checksums = self._write(action, lambda: self._clock() > deadline_s)
            self.counts.written_bytes += action.space.page_bytes * outcomes.count(IoOutcome.DONE)
            self.counts.seconds.append(("write", self._clock() - begun_s))
            end(outcomes, checksums)
            self._look_after()

        def abandon() -> None:
            pages = len(action.keys)
            end([IoOutcome.ABANDONED] * pages, [b""] * pages)

        self.workers.add(Job(action.job, Queue.WRITE, run, abandon, deadline_s))

    def read(self, action: ReadRun) -> None:
        deadline_s = self._clock() + self._io_deadline_s

        def end(outcomes: Sequence[IoOutcome]) -> None:
            self._count(outcomes)
            self._ended(ReadEnded(action.job, tuple(outcomes)))

        def run() -> None:
            begun_s = self._clock()
            outcomes = self._read(action, lambda: self._clock() > deadline_s)
            self.counts.read_bytes += action.space.page_bytes * outcomes.count(IoOutcome.DONE)
            self.counts.seconds.append(("read", self._clock() - begun_s))
            end(outcomes)
            self._look_after()

        def abandon() -> None:
            end([IoOutcome.ABANDONED] * len(action.keys))

        queue = Queue.PREFETCH if action.prefetch else Queue.LOAD
        self.workers.add(Job(action.job, queue, run, abandon, deadline_s))

    def hurry(self, job: int) -> None:
        """Somebody waits for a prefetch now."""
        self.workers.hurry(job, deadline_s=self._clock() + self._io_deadline_s)

    def forget(self, action: ForgetPage) -> None:
        """Never blocks: the record is freed with the next write."""
        self.table.forget(action.place)

    def note_uses(self, action: NoteUses) -> None:
        """Never blocks: uses are written down every USES_EVERY_S."""
        self.table.touch(action.place, action.stride_bytes, action.counts, self._wall_clock())
        self._look_after()

    def remove_segment(self, number: int) -> None:
        """Give an empty segment's room back to the filesystem. Never blocks: the file goes when a
        thread has time, or before the segment is written to again."""
        self._releasing.add(number)
        self._look_after()

    def stop(self, *, deadline_s: float) -> bool:
        """Finish the jobs there are, abandon what the time does not reach, seal the page table.
        True if no job was left running.

        Raises OSError when the seal cannot be written; the table is then merely unsealed.
        """
        self.workers.drain(deadline_s=deadline_s - SEAL_RESERVE_S)
        still_running = self.workers.stop(deadline_s=deadline_s)
        wait_s = max(0.1, deadline_s - self._clock())
        return self.table.seal(self._wall_clock(), wait_s=wait_s) and not still_running

    def close(self) -> None:
        """After stop(): close the files, whose room comes back only then where they are removed. A
        job that hangs goes on with those it has."""
        if self.workers.ended:
            self.segments.close()
            self.table.close()

    def _count(self, outcomes: Sequence[IoOutcome]) -> None:
        for outcome in outcomes:
            self.counts.faults[outcome] += 1

    def _write(
        self, action: WriteRun, late: Callable[[], bool]
    ) -> tuple[list[IoOutcome], list[bytes]]:
        """All pages of a run, then their records; the checksum of each that was written."""
        number, within = divmod(action.place, self.table.segment_bytes)
        space, pages = action.space, len(action.keys)
        try:
            self._finish_release(number)
            device = self.segments.for_writing(number)
            self.table.assign(number, action.stride_bytes)
        except OSError as fault:
            return [classify(fault)] * pages, [b""] * pages
        views = [self._memory.view(offset, action.stride_bytes) for offset in action.offsets]
        bodies = [view[: space.page_bytes] for view in views]
        checksums = page_checksums(space, action.keys, bodies)
        stretch = Stretch(device, SEGMENT_HEADER_BYTES + within, views, space.page_bytes)
        outcomes = write_stretch(stretch, late)
        checksums = [
            checksum if outcome is IoOutcome.DONE else b""
            for checksum, outcome in zip(checksums, outcomes, strict=True)
        ]
        try:
            self.table.put(
                space,
                action.place,
                stride_bytes=action.stride_bytes,
                keys=action.keys,
                parents=action.parents,
                checksums=checksums,
                now_s=self._wall_clock(),
            )
        except OSError as fault:
            return [classify(fault)] * pages, [b""] * pages
        return outcomes, checksums

    def _read(self, action: ReadRun, late: Callable[[], bool]) -> list[IoOutcome]:
        """All pages of a run, each checked by itself."""
        number, within = divmod(action.place, self.table.segment_bytes)
        space, device = action.space, self.segments.at(number)
        if device is None:
            return [IoOutcome.CORRUPT] * len(action.keys)
        views = [self._memory.view(offset, action.stride_bytes) for offset in action.offsets]
        stretch = Stretch(device, SEGMENT_HEADER_BYTES + within, views, space.page_bytes)
        outcomes = read_stretch(stretch, late)
        bodies = [view[: space.page_bytes] for view in views]
        found = page_checksums(space, action.keys, bodies)
        for index, checksum in enumerate(action.checksums):
            if outcomes[index] is IoOutcome.DONE and found[index] != checksum:
                outcomes[index] = IoOutcome.CORRUPT
        return outcomes

    def _look_after(self) -> None:
        """Queue the tier's own work if there is any and none is queued."""
        due = self._releasing or self.segments.one_is_due or self._clock() > self._uses_due_s
        if due and not self._tending:
            self._tending = True
            deadline_s = self._clock() + self._io_deadline_s
            self.workers.add(Job(0, Queue.UPKEEP, self._tend, self._tend_later, deadline_s))

    def _tend_later(self) -> None:
        self._tending = False

    def _tend(self) -> None:
        self._tending = False
        try:
            for number in tuple(self._releasing):
                self._finish_release(number)
            self.segments.make_ahead()
            if self._clock() > self._uses_due_s:
                self._uses_due_s = self._clock() + USES_EVERY_S
                self.table.write_uses()
        except OSError as fault:
            self.counts.faults[classify(fault)] += 1

    def _finish_release(self, number: int) -> None:
        """Remove a released segment, table first. Raises OSError; it is then tried again."""
        if number in self._releasing:
            with self._release_lock:
                if number in self._releasing:
                    self.table.release(number)
                    self.segments.release(number)
                    self._releasing.discard(number)
