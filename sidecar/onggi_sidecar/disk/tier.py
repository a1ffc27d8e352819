"""The disk tier: the engine's WriteRun, ReadRun and ForgetPage carried out on files."""

import errno
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from onggi_core.engine.actions import ForgetPage, ReadRun, WriteRun
from onggi_core.engine.events import IoOutcome, ReadEnded, WriteEnded
from onggi_sidecar.disk.budget import DiskPlan
from onggi_sidecar.disk.device import Device
from onggi_sidecar.disk.journal import Journal
from onggi_sidecar.disk.outcome import classify
from onggi_sidecar.disk.record import page_checksum
from onggi_sidecar.disk.segment import SEGMENT_HEADER_BYTES, create_segment, segment_path
from onggi_sidecar.disk.workers import Job, Queue, Workers
from onggi_sidecar.log import warn

NO_SPACE_REST_S: Final = 2.0
"""After the filesystem said no to a segment, how long nobody asks it again: a store costs at most
one attempt, and space that comes back is found well within ten seconds."""

SEAL_RESERVE_S: Final = 1.0
"""Of the time to stop in, kept for sealing the journal."""

TIMINGS_MAX: Final = 4096
"""Timings kept between two scrapes: at 15 s apart a disk of 270 pages a second loses none."""


class PageMemory(Protocol):
    """Where pages lie in memory: the arena."""

    def view(self, offset_bytes: int, length_bytes: int) -> memoryview: ...


@dataclass(slots=True)
class DiskCounts:
    """Since start, by class of fault. Bytes are those of pages really moved."""

    read_bytes: int = 0
    written_bytes: int = 0
    seconds: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=TIMINGS_MAX))
    """(read or write, how long the job ran), until metrics takes them; the oldest go first."""
    faults: dict[IoOutcome, int] = field(default_factory=lambda: dict.fromkeys(IoOutcome, 0))


class DiskTier:
    """Moves pages between arena and segments and keeps the journal in step.

    `ended` is called with each job's end, on an I/O thread. Which place a block gets is the
    engine's business; that data comes before its record, and a checksum before a hit, is ours.
    """

    def __init__(
        self,
        folder: Path,
        *,
        plan: DiskPlan,
        journal: Journal,
        devices: dict[int, Device],
        memory: PageMemory,
        workers: Workers,
        ended: Callable[[WriteEnded | ReadEnded], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        io_deadline_s: float,
    ) -> None:
        self.plan = plan
        self.counts = DiskCounts()
        self.workers = workers
        self._folder = folder
        self._journal = journal
        self._devices = devices
        self._memory = memory
        self._ended = ended
        self._clock = clock
        self._wall_clock = wall_clock
        self._io_deadline_s = io_deadline_s
        self._making = threading.Lock()
        self._no_space_until_s = 0.0

    @property
    def journal_bytes(self) -> int:
        return self._journal.file_bytes

    @property
    def segments_made(self) -> int:
        return len(self._devices)

    @property
    def no_space(self) -> bool:
        """Whether the filesystem lately refused a new segment."""
        return self._clock() < self._no_space_until_s

    def write(self, action: WriteRun) -> None:
        pages = len(action.keys)

        def end(outcomes: tuple[IoOutcome, ...], checksums: tuple[bytes, ...]) -> None:
            self._count(outcomes)
            self._ended(WriteEnded(action.job, outcomes, checksums))

        def run() -> None:
            ends = [self._write(action, index) for index in range(pages)]
            end(tuple(outcome for outcome, _ in ends), tuple(checksum for _, checksum in ends))

        self._add(Queue.WRITE, run, lambda outcome: end((outcome,) * pages, (b"",) * pages))

    def read(self, action: ReadRun) -> None:
        pages = len(action.keys)

        def end(outcomes: tuple[IoOutcome, ...]) -> None:
            self._count(outcomes)
            self._ended(ReadEnded(action.job, outcomes))

        def run() -> None:
            end(tuple(self._read(action, index) for index in range(pages)))

        queue = Queue.PREFETCH if action.prefetch else Queue.LOAD
        self._add(queue, run, lambda outcome: end((outcome,) * pages))

    def forget(self, action: ForgetPage) -> None:
        """Never blocks: the record is written with the next PUT."""
        self._journal.drop(action.place, action.key)

    def remove_segment(self, number: int) -> None:
        """Give an empty segment's room back to the filesystem. Its name goes at once, so that it
        can be made again; freeing a gigabyte takes its time and is a thread's work."""
        with self._making:
            if number not in self._devices:
                return
            try:
                segment_path(self._folder, number).unlink(missing_ok=True)
            except OSError as fault:
                warn("segment_kept", f"cannot remove segment {number}: {fault.strerror}")
                return
            device = self._devices.pop(number)
        self.workers.add(Queue.WRITE, Job(device.close, device.close, math.inf))

    def stop(self, *, deadline_s: float) -> bool:
        """Finish the jobs there are, abandon what the time does not reach, seal the journal. True
        if no job was left running.

        Raises OSError when the seal cannot be written; the journal is then merely unsealed.
        """
        self.workers.drain(deadline_s=deadline_s - SEAL_RESERVE_S)
        still_running = self.workers.stop(deadline_s=deadline_s)
        wait_s = max(0.1, deadline_s - self._clock())
        return self._journal.seal(self._wall_clock(), wait_s=wait_s) and not still_running

    def _add(
        self, queue: Queue, run: Callable[[], None], abandon: Callable[[IoOutcome], None]
    ) -> None:
        deadline_s = self._clock() + self._io_deadline_s
        self.workers.add(queue, Job(run, lambda: abandon(IoOutcome.ABANDONED), deadline_s))

    def _count(self, outcomes: tuple[IoOutcome, ...]) -> None:
        for outcome in outcomes:
            self.counts.faults[outcome] += 1

    def _write(self, action: WriteRun, index: int) -> tuple[IoOutcome, bytes]:
        """One page of a run, and its record; answers with the checksum of what was written."""
        begun_s, key, page_bytes = self._clock(), action.keys[index], action.space.page_bytes
        place = action.place + index * action.stride_bytes
        number, within = divmod(place, self.plan.segment_bytes)
        try:
            device = self._devices.get(number) or self._make_segment(number)
            page = self._memory.view(action.offsets[index], action.stride_bytes)
            checksum = page_checksum(action.space, key, page[:page_bytes])
            device.write_from(page, SEGMENT_HEADER_BYTES + within)
            self._journal.put(
                action.space,
                place,
                key=key,
                parent=action.parents[index],
                checksum=checksum,
                now_s=self._wall_clock(),
            )
        except OSError as fault:
            return classify(fault), b""
        self.counts.written_bytes += page_bytes
        self.counts.seconds.append(("write", self._clock() - begun_s))
        return IoOutcome.DONE, checksum

    def _read(self, action: ReadRun, index: int) -> IoOutcome:
        begun_s, page_bytes = self._clock(), action.space.page_bytes
        place = action.place + index * action.stride_bytes
        number, within = divmod(place, self.plan.segment_bytes)
        page = self._memory.view(action.offsets[index], action.stride_bytes)
        try:
            got = self._devices[number].read_into(page, SEGMENT_HEADER_BYTES + within)
        except OSError as fault:
            return classify(fault)
        self.counts.read_bytes += page_bytes
        self.counts.seconds.append(("read", self._clock() - begun_s))
        checksum = page_checksum(action.space, action.keys[index], page[:page_bytes])
        whole = got >= page_bytes
        return (
            IoOutcome.DONE if whole and checksum == action.checksums[index] else (IoOutcome.CORRUPT)
        )

    def _make_segment(self, number: int) -> Device:
        """Preallocate a segment that a first page goes to.

        Whatever keeps it from being made (no space, a folder that was taken away) is no fault of
        the place, so it raises ENOSPC, and the filesystem is asked once per NO_SPACE_REST_S.
        """
        with self._making:
            if number in self._devices:
                return self._devices[number]
            if self.no_space:
                raise OSError(errno.ENOSPC, "the filesystem was full a moment ago")
            try:
                device = create_segment(
                    self._folder,
                    number,
                    tier_uuid=self._journal.tier_uuid,
                    segment_bytes=self._journal.segment_bytes,
                )
            except OSError as fault:
                self._no_space_until_s = self._clock() + NO_SPACE_REST_S
                warn(
                    "segment_refused",
                    f"cannot make segment {number} in {self._folder}: {fault.strerror}; the tier "
                    "goes on with those it has and asks again later",
                    segment=number,
                )
                raise OSError(errno.ENOSPC, fault.strerror) from fault
            self._devices[number] = device
            return device
