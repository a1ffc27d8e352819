"""What the parts of the engine share: tiers, spaces, sessions, counters and the actions so far."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from onggi_core.engine.actions import Action, ForgetPage
from onggi_core.engine.counters import Counters
from onggi_core.engine.session import Load, Session, Store
from onggi_core.engine.space import Space, TierName
from onggi_core.engine.tier import Tier
from onggi_core.page import Block, Page
from onggi_core.wire.replies import Mode
from onggi_core.wire.requests import LoadPrepare

LEASE_S: Final = 30.0
"""How long a client may hold a page. A copy takes milliseconds; a request that waits for its turn
in the engine with its hit pinned takes seconds; past half a minute the client is stuck."""

SPACES_MAX: Final = 1024
"""Keyspaces known at once, empty ones aside: 16 engines of 64 ranks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change in one life of the agent. Sizes in bytes."""

    epoch: bytes
    arena: str
    arena_bytes: int
    data_offset: int
    extent_bytes: int
    extents: int
    segment_bytes: int = 0
    segments: int = 0
    """Disk tier: how many segments its budget holds; 0 is no disk tier."""


class State:
    def __init__(self, facts: Facts, mode: Mode) -> None:
        self.facts = facts
        self.mode = mode
        self.stopping = False
        self.counters = Counters()
        self.host = Tier(TierName.HOST, facts.extent_bytes, self._left_host)
        self.disk = Tier(TierName.DISK, max(facts.segment_bytes, 1), self._left_disk)
        for number in range(facts.segments):
            self.disk.slab.add_region(number)
        self.spaces: dict[bytes, Space] = {}
        self.sessions: dict[int, Session] = {}
        self.waiting: dict[Page, list[Load]] = {}
        """Loads that wait for a page to arrive."""
        self.waiting_loads: dict[Load, None] = {}
        self.parked: dict[Load, LoadPrepare] = {}
        """Of those, the ones that came before the first extent was touched, with what they ask."""
        self.dirty: OrderedDict[Block, Space] = OrderedDict()
        """Sealed in the host tier, not yet on their way to disk, oldest first. No longer than the
        host tier has pages."""
        self.writes: dict[int, tuple[Space, Block]] = {}
        self.reads: dict[int, tuple[Space, Block]] = {}
        self.resting_regions: dict[int, None] = {}
        """Disk segments that found no space when they were to be made; tried again later."""
        self.extents_ready = 0
        self.stores: OrderedDict[int, Store] = OrderedDict()
        self.loads: OrderedDict[int, Load] = OrderedDict()
        self.actions: list[Action] = []
        self._serial = 0
        self._use = 0

    def serial(self) -> int:
        """A number never given before: for tickets and jobs."""
        self._serial += 1
        return self._serial

    def use(self) -> int:
        """The next, highest, number of use: what the rankings go by."""
        self._use += 1
        return self._use

    def arena_offset(self, page: Page) -> int:
        return self.facts.data_offset + page.place

    def _left_host(self, space: Space, block: Block, _place: int) -> None:
        self.counters.evicted_host_blocks += 1
        if self.dirty.pop(block, None) is not None:
            self.counters.unwritten_blocks += 1
        space.forget_if_nowhere(block)

    def _left_disk(self, space: Space, block: Block, place: int) -> None:
        self.counters.evicted_disk_blocks += 1
        self.forget_on_disk(space, block, place)

    def forget_on_disk(self, space: Space, block: Block, place: int) -> None:
        """The disk tier no longer holds a block: said in the journal before its place is reused."""
        block.checksum = b""
        self.actions.append(ForgetPage(place, space.spec, block.key))
        space.forget_if_nowhere(block)
