"""The agent's hands: runs of pages between arena and disk, extents touched and released.

Jobs begin and end after delays drawn from the seed, in any order. What a real driver may do to a
page while it works on it happens here too: a page being read from disk holds rubbish before it
holds the block, and a page being written is looked at twice, once for its checksum and once for its
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.agenda import Deed
from tests.sim.broken import Broken
from tests.sim.disk import DeviceFault, NoSpace
from tests.sim.pages import checksum, scaled

from onggi_core.engine.actions import (
    Action,
    ForgetPage,
    HurryRead,
    NoteUses,
    ReadRun,
    ReleaseExtent,
    ReleaseSegment,
    TouchExtent,
    WriteRun,
)
from onggi_core.engine.events import (
    ExtentRefused,
    ExtentTouched,
    IoOutcome,
    ReadEnded,
    WriteEnded,
)

if TYPE_CHECKING:
    from tests.sim.life import Life

SLOW: Final = 100.0
HANG_LOOK_S: Final = 1.0
"""How often a job that is held up by a hung disk looks whether it goes on."""


class Driver:
    """Carries out what one life's engine asks for."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._world = life.world
        self._rng = life.world.rng
        self.jobs: dict[int, WriteRun | ReadRun] = {}
        self.touching: set[int] = set()
        self._seen: dict[int, list[bytes]] = {}
        """Of a write that began: what its pages held then."""

    def do(self, action: Action) -> None:
        match action:
            case WriteRun() | ReadRun():
                self.jobs[action.job] = action
                self._later(self._delay_s(), lambda: self._begin(action))
            case ForgetPage(place):
                self._world.table.forget(place)
            case NoteUses():
                self._world.table.note(action)
            case HurryRead(job):
                if job not in self.jobs:
                    raise Broken("liveness", f"read {job} is to hurry and is over")
            case TouchExtent(number):
                self._world.happened["extent touched again"] += 1
                self.touch(number)
            case ReleaseExtent(number):
                self._world.happened["extent released"] += 1
                self._life.arena.release(number)
            case ReleaseSegment(number):
                self._world.happened["segment released"] += 1
                if number in self._world.disk.segments:
                    self._world.disk.remove(number)
                self._world.table.release(number)

    def touch(self, number: int) -> None:
        self.touching.add(number)
        self._later(self._rng.uniform(0.01, 1.0), lambda: self._touched(number))

    def die(self) -> None:
        """What was under way stops where it is: some pages are cut, some have their record."""
        for job in self.jobs.values():
            if isinstance(job, WriteRun):
                for number in range(len(job.keys)):
                    if self._rng.random() < 0.5:
                        content = self._page(job, number)
                        self._world.disk.tear(job.place + number * job.stride_bytes, content)

    def _touched(self, number: int) -> None:
        self.touching.discard(number)
        if self._rng.random() < self._world.config.faults.touch_refused and not self._world.resting:
            self._life.step(ExtentRefused(number))
            return
        self._life.arena.touch(number)
        self._life.step(ExtentTouched(number, self._life.inherit(number)))

    def _begin(self, job: WriteRun | ReadRun) -> None:
        pages = range(len(job.keys))
        if isinstance(job, ReadRun):
            for offset in job.offsets:
                rubbish = self._rng.randbytes(scaled(job.space.page_bytes))
                self._life.arena.write(offset, rubbish)
        else:
            self._seen[job.job] = [self._page(job, number) for number in pages]
        self._later(self._delay_s(), lambda: self._end(job))

    def _end(self, job: WriteRun | ReadRun) -> None:
        if self._world.disk.hung:
            self._later(HANG_LOOK_S, lambda: self._end(job))
            return
        del self.jobs[job.job]
        if isinstance(job, ReadRun):
            outcomes = tuple(self._read(job, number) for number in range(len(job.keys)))
            self._life.step(ReadEnded(job.job, outcomes))
            return
        ends = [self._write(job, number) for number in range(len(job.keys))]
        self._seen.pop(job.job)
        self._life.step(
            WriteEnded(job.job, tuple(how for how, _ in ends), tuple(proof for _, proof in ends))
        )

    def _write(self, job: WriteRun, number: int) -> tuple[IoOutcome, bytes]:
        disk, place = self._world.disk, job.place + number * job.stride_bytes
        if disk.abandons():
            return IoOutcome.ABANDONED, b""
        content, key = self._page(job, number), job.keys[number]
        proof = checksum(job.space, key, self._seen[job.job][number])
        try:
            disk.write(place, content)
        except NoSpace:
            return IoOutcome.NO_SPACE, b""
        except DeviceFault:
            return IoOutcome.FAULT, b""
        self._world.wrote(job.space, key, content)
        self._world.table.put(job.space, place, key, job.parents[number], proof)
        return IoOutcome.DONE, proof

    def _read(self, job: ReadRun, number: int) -> IoOutcome:
        disk, place = self._world.disk, job.place + number * job.stride_bytes
        if disk.abandons():
            return IoOutcome.ABANDONED
        try:
            content = disk.read(place, job.space.page_bytes)
        except DeviceFault:
            return IoOutcome.FAULT
        self._life.arena.write(job.offsets[number], content)
        found = self._life.arena.read(job.offsets[number], job.space.page_bytes)
        right = checksum(job.space, job.keys[number], found) == job.checksums[number]
        return IoOutcome.DONE if right else IoOutcome.CORRUPT

    def _page(self, job: WriteRun, number: int) -> bytes:
        return self._life.arena.read(job.offsets[number], job.space.page_bytes)

    def _delay_s(self) -> float:
        slow = SLOW if self._world.disk.slow else 1.0
        return float(10 ** self._rng.uniform(-3.0, -0.5)) * slow

    def _later(self, delay_s: float, deed: Deed) -> None:
        """As agenda.after, for as long as this life lasts."""
        life = self._life

        def unless_over() -> None:
            if not life.over:
                deed()

        self._world.agenda.after(delay_s, unless_over)
