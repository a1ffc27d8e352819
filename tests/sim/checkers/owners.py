"""owners: no page has two owners, in the arena and on disk.

A page is filled by one (a client's store until it completes or its stream ends, whatever its
lease; a read from disk) or read by many (loads until their lease ends, writes to disk), never
both. Overlap counts: a page of two slots and one of a single slot may not share the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.sim.checkers.base import Checker
from tests.sim.config import SLOT
from tests.sim.ledger import Grant, Loan
from tests.sim.life import Life

from onggi_core.arena_header import DATA_OFFSET_BYTES
from onggi_core.engine.actions import Action, ReadRun, ReleaseExtent, ReleaseSegment, WriteRun
from onggi_core.engine.events import Event, ReadEnded, WriteEnded
from onggi_core.geometry import stride


class _Slots:
    """Who holds which slots of one tier."""

    def __init__(self) -> None:
        self.filled: dict[int, str] = {}
        self.read: Counter[int] = Counter()

    def why_not_fill(self, slots: Iterable[int]) -> str:
        for slot in slots:
            if slot in self.filled:
                return f"slot {slot} is being filled by {self.filled[slot]}"
            if self.read[slot]:
                return f"slot {slot} has {self.read[slot]} readers"
        return ""

    def why_not_read(self, slots: Iterable[int]) -> str:
        for slot in slots:
            if slot in self.filled:
                return f"slot {slot} is being filled by {self.filled[slot]}"
        return ""


def _slots(begin: int, page_bytes: int) -> range:
    return range(begin // SLOT, (begin + stride(page_bytes)) // SLOT)


class Owners(Checker):
    name = "owners"

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._host, self._disk = _Slots(), _Slots()
        self._jobs: dict[int, ReadRun | WriteRun] = {}

    def after(self, event: Event, actions: list[Action]) -> None:
        if isinstance(event, ReadEnded | WriteEnded):
            self._end_job(self._jobs.pop(event.job))
        for held in self.life.change.closed:
            if isinstance(held, Grant):
                for slot in self._grant_slots(held):
                    del self._host.filled[slot]
            else:
                self._host.read.subtract(self._loan_slots(held))
        for held in self.life.change.opened:
            if isinstance(held, Grant):
                self._fill(self._host, self._grant_slots(held), f"store {held.ticket}")
            else:
                self._read(self._host, self._loan_slots(held), f"load {held.ticket}")
        for action in actions:
            self._acted(action)

    def _acted(self, action: Action) -> None:
        match action:
            case ReadRun():
                self._jobs[action.job] = action
                self._fill(self._host, self._arena_slots(action), f"read {action.job}")
                self._read(self._disk, self._disk_slots(action), f"read {action.job}")
            case WriteRun():
                self._jobs[action.job] = action
                self._read(self._host, self._arena_slots(action), f"write {action.job}")
                self._fill(self._disk, self._disk_slots(action), f"write {action.job}")
            case ReleaseExtent(number):
                size = self.life.facts.extent_bytes // SLOT
                self._empty(self._host, range(number * size, (number + 1) * size), action)
            case ReleaseSegment(number):
                size = self.life.facts.segment_bytes // SLOT
                self._empty(self._disk, range(number * size, (number + 1) * size), action)

    def _end_job(self, job: ReadRun | WriteRun) -> None:
        if isinstance(job, ReadRun):
            for slot in self._arena_slots(job):
                del self._host.filled[slot]
            self._disk.read.subtract(self._disk_slots(job))
        else:
            self._host.read.subtract(self._arena_slots(job))
            for slot in self._disk_slots(job):
                del self._disk.filled[slot]

    def _fill(self, tier: _Slots, slots: list[int], who: str) -> None:
        why = tier.why_not_fill(slots)
        if len(set(slots)) < len(slots):
            why = "one slot for two of its own pages"
        if why:
            raise self.broken(f"{who} got a page that is not free: {why}")
        tier.filled.update(dict.fromkeys(slots, who))

    def _read(self, tier: _Slots, slots: list[int], who: str) -> None:
        if why := tier.why_not_read(slots):
            raise self.broken(f"{who} reads a page that is not whole: {why}")
        tier.read.update(slots)

    def _empty(self, tier: _Slots, slots: range, action: Action) -> None:
        if why := tier.why_not_fill(slots):
            raise self.broken(f"{action} though {why}")

    def _grant_slots(self, grant: Grant) -> list[int]:
        return [s for _, at in grant.pages for s in self._page(at, grant.space.page_bytes)]

    def _loan_slots(self, loan: Loan) -> list[int]:
        return [s for space, _, at in loan.pages() for s in self._page(at, space.page_bytes)]

    def _arena_slots(self, job: ReadRun | WriteRun) -> list[int]:
        return [s for at in job.offsets for s in self._page(at, job.space.page_bytes)]

    def _page(self, offset: int, page_bytes: int) -> Iterable[int]:
        return _slots(offset - DATA_OFFSET_BYTES, page_bytes)

    def _disk_slots(self, job: ReadRun | WriteRun) -> list[int]:
        return list(self._disk_pages(job))

    def _disk_pages(self, job: ReadRun | WriteRun) -> Iterator[int]:
        for number in range(len(job.keys)):
            yield from _slots(job.place + number * job.stride_bytes, job.space.page_bytes)
