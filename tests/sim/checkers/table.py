"""table: what the disk tier notes is what the engine holds on disk, no more and no less.

A place is given to another block only after the tier was told to forget the first; a block is noted
once; a segment goes only when nothing in it is noted.
"""

from __future__ import annotations

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.life import Life

from onggi_core.engine.actions import Action, ForgetPage, ReadRun, ReleaseSegment, WriteRun
from onggi_core.engine.events import Adopted, Event, IoOutcome, WriteEnded

_Block = tuple[bytes, bytes]


class Table(Checker):
    name = "table"

    def begin(self, life: Life) -> None:
        super().begin(life)
        self._noted: dict[int, _Block] = {}
        self._writes: dict[int, WriteRun] = {}

    def after(self, event: Event, actions: list[Action]) -> None:
        if isinstance(event, Adopted):
            last = dict(zip(event.keys, event.places, strict=True))  # of two places the last holds
            for key, place in last.items():
                self._noted[place] = (event.space.fingerprint, key)
        elif isinstance(event, WriteEnded):
            run = self._writes.pop(event.job)
            for number, outcome in enumerate(event.outcomes):
                if outcome is IoOutcome.DONE:
                    place = run.place + number * run.stride_bytes
                    self._noted[place] = (run.space.fingerprint, run.keys[number])
        for action in actions:
            self._acted(action)

    def rest(self) -> None:
        pages = look.stats(self.life.engine)["disk_pages"]
        if pages != len(self._noted):
            raise self.broken(f"{len(self._noted)} blocks are noted, {pages} pages are held")
        if len(set(self._noted.values())) < len(self._noted):
            raise self.broken("a block is noted at two places")

    def _acted(self, action: Action) -> None:
        match action:
            case ForgetPage(place, space, key):
                if self._noted.pop(place, None) != (space.fingerprint, key):
                    raise self.broken(f"{action} of what is not noted there")
            case WriteRun():
                self._writes[action.job] = action
                for number in range(len(action.keys)):
                    place = action.place + number * action.stride_bytes
                    if place in self._noted:
                        raise self.broken(f"place {place} is written to and still noted")
            case ReadRun():
                for number, key in enumerate(action.keys):
                    place = action.place + number * action.stride_bytes
                    if self._noted.get(place) != (action.space.fingerprint, key):
                        raise self.broken(f"place {place} is read and not noted as that block")
            case ReleaseSegment(number):
                size = self.life.facts.segment_bytes
                if any(place // size == number for place in self._noted):
                    raise self.broken(f"segment {number} goes with blocks that are noted")
