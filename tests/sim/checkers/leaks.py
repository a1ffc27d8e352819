"""leaks: every page is free or held for a reason, and at rest none is held at all."""

from __future__ import annotations

from tests.sim import look
from tests.sim.checkers.base import Checker
from tests.sim.pages import FLEETS

from onggi_core.geometry import stride
from onggi_core.identity import ROOT, block_key
from onggi_core.wire.requests import Hello, StorePrepare


class Leaks(Checker):
    name = "leaks"

    def walk(self) -> None:
        if wrong := look.inconsistencies(self.life.engine):
            raise self.broken(wrong)

    def rest(self) -> None:
        stats = look.stats(self.life.engine)
        for held in (
            "sessions",
            "open_stores",
            "open_loads",
            "waiting_loads",
            "writes_in_flight",
            "reads_in_flight",
            "dead_pages",
        ):
            if stats[held]:
                raise self.broken(f"{stats[held]} {held} at rest")
        if held := look.held_pages(self.life.engine):
            raise self.broken(f"{held} at rest")
        self._all_room_can_be_had()

    def _all_room_can_be_had(self) -> None:
        """What is free or may be given up is all there is: one client can have every page, unless
        the policy turns it away."""
        look.let_all_in(self.life.engine)
        life, (space, *_) = self.life, FLEETS[0]
        pages = life.facts.extents * (life.facts.extent_bytes // stride(space.page_bytes))
        session = life.open(self.world.clients[0])
        life.ask_now(session, Hello(0, "all", (space,)))
        keys = tuple(block_key(ROOT, f"rest/{n}".encode()) for n in range(pages + 1))
        life.ask_now(session, StorePrepare(0, ROOT, keys))
        grants = [g for g in life.ledger.grants.values() if g.session == session]
        got = sum(len(grant.pages) for grant in grants)
        life.close(session)
        if got != pages:
            raise self.broken(f"{got} of {pages} pages can be had at rest")
