"""budgets: nothing is held outside the extents and segments that there may be, nor uncounted."""

from __future__ import annotations

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.config import SLOT
from tests.sim.ledger import Grant

from onggi_core.arena_header import DATA_OFFSET_BYTES
from onggi_core.engine.actions import Action, ReadRun, TouchExtent, WriteRun
from onggi_core.engine.events import Event
from onggi_core.geometry import stride


class Budgets(Checker):
    name = "budgets"

    def after(self, event: Event, actions: list[Action]) -> None:
        for held in self.life.change.opened:
            if isinstance(held, Grant):
                for _, offset in held.pages:
                    self._in_arena(offset, held.space.page_bytes)
                if held.room:
                    self._rooms()
            else:
                for space, _, offset in held.pages():
                    self._in_arena(offset, space.page_bytes)
        for action in actions:
            if isinstance(action, WriteRun | ReadRun):
                self._run(action)
            elif isinstance(action, TouchExtent):
                self._touch(action.number)

    def walk(self) -> None:
        stats, facts = look.stats(self.life.engine), self.life.facts
        there = len(self.life.arena.ready) * facts.extent_bytes
        if stats["host_used_bytes"] > there:
            raise self.broken(f"{stats['host_used_bytes']} bytes used of {there} in the arena")
        most = facts.segments * facts.segment_bytes
        if stats["disk_used_bytes"] > most:
            raise self.broken(f"{stats['disk_used_bytes']} bytes used of {most} on disk")

    def _rooms(self) -> None:
        rooms = [grant for grant in self.life.ledger.grants.values() if grant.room]
        ahead = sum(len(room.pages) * stride(room.space.page_bytes) for room in rooms)
        there = len(self.life.arena.ready) * self.life.facts.extent_bytes
        if ahead > there // self.life.facts.rooms.share:
            raise self.broken(f"{ahead} bytes are granted ahead of stores, of {there}")

    def _in_arena(self, offset: int, page_bytes: int) -> None:
        place, extent_bytes = offset - DATA_OFFSET_BYTES, self.life.facts.extent_bytes
        extent, within = divmod(place, extent_bytes)
        if extent not in self.life.arena.ready:
            raise self.broken(f"offset {offset} lies in extent {extent}, which is not there")
        if within % SLOT or within + stride(page_bytes) > extent_bytes:
            raise self.broken(f"no page of {page_bytes} bytes can lie at offset {offset}")

    def _run(self, run: WriteRun | ReadRun) -> None:
        facts, size = self.life.facts, stride(run.space.page_bytes)
        columns = {len(run.offsets), len(run.keys)}
        columns.add(len(run.parents) if isinstance(run, WriteRun) else len(run.checksums))
        if len(columns) != 1 or not run.keys or run.stride_bytes != size:
            raise self.broken(f"{run} has columns of {columns} rows, stride {run.stride_bytes}")
        for offset in run.offsets:
            self._in_arena(offset, run.space.page_bytes)
        segment, within = divmod(run.place, facts.segment_bytes)
        if segment >= facts.segments:
            raise self.broken(f"place {run.place} is in segment {segment} of {facts.segments}")
        if within % size or within + size * len(run.keys) > facts.segment_bytes:
            raise self.broken(f"{len(run.keys)} pages of {size} cannot lie at place {run.place}")

    def _touch(self, number: int) -> None:
        life = self.life
        if number in life.arena.ready or number in life.driver.touching:
            raise self.broken(f"extent {number} is to be touched and already is")
        there = len(life.arena.ready) + len(life.driver.touching)
        if there >= life.budget.extents or number >= life.facts.extents:
            raise self.broken(f"extent {number} is to be touched; {there} of {life.budget} are")
