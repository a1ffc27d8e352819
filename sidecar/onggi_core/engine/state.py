"""What the parts of the engine share: tiers, spaces, sessions, counters and the actions so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from onggi_core.board.writer import Board
from onggi_core.breaker import Breaker
from onggi_core.engine.actions import Action, ForgetPage
from onggi_core.engine.counters import Counters
from onggi_core.engine.regions import Regions
from onggi_core.engine.session import Load, Session, Store
from onggi_core.engine.space import Space
from onggi_core.engine.tier import Evicted, Tier
from onggi_core.errors import BadRequest
from onggi_core.geometry import ALIGN_BYTES
from onggi_core.geometry import stride as stride_of
from onggi_core.index.blocks import HINTED, Blocks
from onggi_core.index.pages import Pages
from onggi_core.policy.chains import ChainRanking
from onggi_core.policy.choosers import LeastRecent
from onggi_core.policy.sights import Sights
from onggi_core.segments import SEGMENT_TOKENS
from onggi_core.wire.replies import Mode
from onggi_core.wire.requests import LoadPrepare, SpaceSpec

LEASE_S: Final = 30.0
"""How long a client may hold a page. A copy takes milliseconds; a request that waits for its turn
in the engine with its hit pinned takes seconds; past half a minute the client is stuck."""

SPACES_MAX: Final = 1024
"""Keyspaces known at once, empty ones aside: 16 engines of 64 ranks."""

CHUNK_BYTES: Final = 1 << 20
"""What a disk moves at its full speed: past it a transfer gains no bytes a second, only fewer ends,
and whoever waits for the first block of a run waits longer."""
RUN_BYTES: Final = 2 * CHUNK_BYTES
"""The largest transfer, unless one page is larger: half as many ends are half of what each costs
threads and engine."""


@dataclass(frozen=True, slots=True)
class RoomBounds:
    """How much of the arena may lie ready for stores that clients have not begun."""

    session_bytes: int = 32 << 20
    """Most of one client: two of the largest batches that engines store, one that is written and
    the next. Some six milliseconds of copying, in which an agent answers."""
    share: int = 8
    """All clients together: at most one part in so many of the arena. What rooms push out is the
    coldest eighth."""
    worth_bytes: int = 1 << 20
    """A smaller room than this and than was asked for is none: a store cut into such small parts
    takes longer than one that waits for its pages."""


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
    segment_tokens: tuple[int, ...] = SEGMENT_TOKENS
    """Where the segments of a prompt end: see onggi_core.segments."""
    rooms: RoomBounds = RoomBounds()


_SIGHTED_BYTES: Final = 1 << 16
"""A page of 16 tokens of a small model: what an arena's size is divided by for its blocks."""


class Write(NamedTuple):
    space: Space
    blocks: Sequence[int]
    """Each follows the one before it."""


class Read(NamedTuple):
    space: Space
    blocks: tuple[int, ...]
    began_s: float


class State:
    def __init__(self, facts: Facts, mode: Mode, board: Board) -> None:
        for name in ("extent_bytes", "segment_bytes"):
            if getattr(facts, name) % ALIGN_BYTES:
                raise BadRequest(name, getattr(facts, name), f"use multiples of {ALIGN_BYTES}")
        self.facts = facts
        self.mode = mode
        self.board = board
        self.stopping = False
        self.counters = Counters()
        self.blocks = Blocks(board.beginnings)
        self.spaces: dict[bytes, Space] = {}
        self.space_rows: list[Space | None] = []
        """The same by number; None where one was dropped."""
        self.groups: dict[int, int] = {}
        """Page stride -> its number in the rankings."""
        self.host = self._tier(self.blocks.host, facts.extent_bytes, self._left_host)
        self.disk = self._tier(
            self.blocks.disk, max(facts.segment_bytes, ALIGN_BYTES), self._left_disk
        )
        self.extents = Regions(facts.extents)
        self.extents.coming.update(range(facts.extents))
        """The shell touches them all when it starts."""
        self.segments = Regions(facts.segments)
        for number in range(facts.segments):
            self.disk.slab.add_region(number)
            self.segments.ready.add(number)
        self.sights = Sights(facts.arena_bytes // _SIGHTED_BYTES)
        """How often keys were stored that may have gone since."""
        self.shrinking = False
        """Whether the last step gave up all that one may for a smaller budget."""
        self.above_high: set[int] = set()
        """Strides whose pages the host tier gives up on its way from the high watermark to the low
        one."""
        self.sessions: dict[int, Session] = {}
        self.waiting: dict[int, list[Load]] = {}
        """Loads that wait for a block to arrive."""
        self.waiting_loads: dict[Load, None] = {}
        self.parked: dict[Load, LoadPrepare] = {}
        """Of those, the ones that came before the first extent was touched, with what they ask."""
        self.dirty: OrderedDict[int, None] = OrderedDict()
        """Sealed in the host tier, not yet on their way to disk, oldest first. No longer than the
        host tier has pages."""
        self.used_runs: dict[int, Sequence[int]] = {}
        """What was asked for and the page table has to hear of, by its last block, the latest
        last: see engine/uses.py."""
        self.writes: dict[int, Write] = {}
        self.writing_bytes = 0
        self.reads: dict[int, Read] = {}
        self.hinted: dict[int, int] = {}
        """Of blocks that come on a hint and nobody waits for: the job of their read."""
        self.breaker = Breaker()
        """Of the disk tier: while it is open, what lies there alone is a miss."""
        self.resting_segments: dict[int, None] = {}
        """Disk segments that found no space when they were to be made; tried again later."""
        self.room_bytes = 0
        """Granted ahead of stores to all clients together, quarantined rooms included."""
        self.room_extents: dict[int, int] = {}
        """The same as pages, by the extent they lie in."""
        self.stores: OrderedDict[int, Store] = OrderedDict()
        self.loads: OrderedDict[int, Load] = OrderedDict()
        self.leaving_stores: dict[int, Store] = {}
        self.leaving_loads: dict[Load, None] = {}
        """What is being taken apart, a part a step: see engine/leaving.py."""
        self.actions: list[Action] = []
        self._serial = 0
        self._tag = 0
        self._use = 0

    @property
    def extents_ready(self) -> int:
        return len(self.extents.ready)

    @property
    def taking_over(self) -> bool:
        """Whether more of a dead agent's arena may come: what is here of it is a part, and the end
        of that part the middle of a chain."""
        return bool(self.extents.coming and self.counters.inherited_blocks)

    @property
    def has_disk(self) -> bool:
        return self.segments.budget > 0

    @property
    def disk_decides(self) -> bool:
        """Which tier the policy guards: the larger one, which holds what the other has too. The
        other takes what comes."""
        host_bytes = self.extents.budget * self.facts.extent_bytes
        return self.segments.budget * self.facts.segment_bytes > host_bytes

    def serial(self) -> int:
        """A number never given before: for tickets and jobs."""
        self._serial += 1
        return self._serial

    def use(self, count: int = 1) -> int:
        """The next, highest, number of use: what the rankings go by. The first of `count`."""
        first = self._use + 1
        self._use += count
        return first

    def used_before(self, number: int) -> None:
        """Uses up to this number were in an earlier life: those to come are higher."""
        self._use = max(self._use, number)

    def add_space(self, spec: SpaceSpec) -> Space:
        rows = self.space_rows
        number = rows.index(None) if None in rows else len(rows)
        group = self.groups.setdefault(stride_of(spec.page_bytes), len(self.groups))
        self._tag += 1
        table, ends = self.blocks.table_for(number), self.facts.segment_tokens
        space = Space(table, self._tag, spec, group, ends)
        rows[number : number + 1] = [space]
        self.spaces[spec.fingerprint] = space
        self.board.name_space(number, space.tag, spec)
        return space

    def drop_space(self, space: Space) -> None:
        """An empty space that nobody uses."""
        del self.spaces[space.spec.fingerprint]
        self.space_rows[space.number] = None

    def forget_on_disk(self, space: Space, block: int, place: int) -> None:
        """The disk tier no longer holds a block: said in its table before its place is reused."""
        self.actions.append(ForgetPage(place, space.spec, self.blocks.key(block)))
        self.blocks.forget_if_nowhere(block)

    def _tier(self, pages: Pages, region_bytes: int, evicted: Evicted) -> Tier:
        ranking = ChainRanking(LeastRecent())
        return Tier(self.blocks, pages, ranking, region_bytes, self.space_rows, evicted)

    def show(self, space: Space, blocks: Sequence[int]) -> None:
        """Sealed blocks of the host tier, where clients see them."""
        index = self.blocks
        keys, parents = index.keys_of(blocks), index.parent_keys_of(blocks)
        self.board.show(blocks, space.tag, keys, parents, index.host.units(blocks))

    def _left_host(self, _space: Space, blocks: range) -> None:
        index, count = self.blocks, len(blocks)
        self.board.take_off(blocks)
        self.counters.evicted_host_blocks += count
        flags = index.flags[blocks.start : blocks.stop]
        if any(flags):
            self.counters.prefetch_useless_blocks += sum(bool(flag & HINTED) for flag in flags)
            index.flags[blocks.start : blocks.stop] = bytes(count)
        if self.dirty:
            for block in [block for block in blocks if block in self.dirty]:
                del self.dirty[block]
                self.counters.unwritten_blocks += 1
        index.forget_tail(blocks)

    def _left_disk(self, space: Space, blocks: range) -> None:
        self.counters.evicted_disk_blocks += len(blocks)
        keys, place = self.blocks.keys_of(blocks), self.disk.pages.place
        rows = zip(reversed(blocks), reversed(keys), strict=True)
        self.actions += [ForgetPage(place(block), space.spec, key) for block, key in rows]
        self.blocks.forget_tail(blocks)  # all at once: the first to be forgotten takes others along
