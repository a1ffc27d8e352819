"""Room in one tier, and who gives it up when there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from onggi_core.engine.dead import Dead
from onggi_core.engine.space import Space
from onggi_core.index.adopting import Made
from onggi_core.index.blocks import Blocks
from onggi_core.index.pages import Pages
from onggi_core.page import PageEvent, PageState, move
from onggi_core.policy.chains import ChainRanking, Past
from onggi_core.policy.choosers import BLOCK_BITS
from onggi_core.policy.ranking import LAST
from onggi_core.region import BLOCKS_MAX, FREE, QUARANTINED, RETIRED, ROOM
from onggi_core.slab import Slab

Row = tuple[int, int]
"""Pages one after the other within one region: where the first begins, and how many."""
Evicted = Callable[[Space, range], None]
"""Called with blocks that lost their pages in this tier, after they did, the last one first."""

FRUITLESS_MAX: Final = 256
"""Blocks given up, beyond those asked for, whose room is in a region that is being withdrawn."""
REGIONS_WEIGHED: Final = 8
"""Regions of other page sizes compared before one is emptied for this size."""
EMPTIED_MAX: Final = 16384
"""Pages of a region that may be emptied in one step: 64 MiB of the smallest, a few hundred of the
usual."""
PART_MAX: Final = 1024
"""Pages given up at a time of a region that has more: some fifteen milliseconds."""


SEALED: Final = bytes([PageState.SEALED])


class Tier:
    """Places blocks on pages and keeps the ranking in step with the table of moves.

    Every block with a page here is in the ranking. One whose page is not SEALED may not go: it is
    held there when the ranking first names it, and released when it is sealed or unpinned. So
    pinning a run costs the ranking nothing.
    """

    def __init__(
        self,
        blocks: Blocks,
        pages: Pages,
        ranking: ChainRanking,
        region_bytes: int,
        spaces: list[Space | None],
        evicted: Evicted,
    ) -> None:
        self.pages = pages
        self.ranking = ranking
        self.slab = Slab(region_bytes)
        self.used_bytes = 0
        self.used_pages = 0
        self._blocks = blocks
        self._spaces = spaces
        self._evicted = evicted
        self._held: set[int] = set()
        self.dead = Dead()

    # ---- pages

    def take(self, space: Space, blocks: Sequence[int], event: PageEvent, use: int) -> int:
        """Pages in a row for the first of `blocks`, in the state `event` leads to; answers how
        many, 0 if there is no room. Evicts nothing. A range is a chain: each of its blocks follows
        the one before it."""
        found = self.slab.take(space.stride_bytes, blocks)
        if found is None:
            return 0
        place, count = found
        self._settle(space, blocks[:count], place, event, use)
        return count

    def take_room(self, space: Space, pages: int) -> list[Row]:
        """Pages that are nobody's yet, as rows; fewer than asked where there is no room. Evicts
        nothing. They end in `fill`, `give_back` or `quarantine_room`."""
        rows: list[Row] = []
        while pages > 0 and (row := self.slab.take(space.stride_bytes, (ROOM,) * pages)):
            rows.append(row)
            pages -= row[1]
        return rows

    def fill(self, space: Space, blocks: Sequence[int], place: int, use: int) -> None:
        """Pages of a room, in a row from `place` on, become those of `blocks`: RESERVED, as if
        just taken. A range is a chain, as in `take`."""
        self.slab.pass_on(place, blocks)
        self._settle(space, blocks, place, PageEvent.RESERVED, use)

    def quarantine_room(self, place: int, pages: int) -> None:
        """As `quarantine`, of pages of a room in a row."""
        move(PageState.RESERVED, PageEvent.LEASE_ENDED)
        self.slab.pass_on(place, (QUARANTINED,) * pages)

    def adopt(self, space: Space, made: Made, places: Sequence[int], past: Past) -> None:
        """Blocks of an earlier life whose places the slab already gave to them, oldest first."""
        blocks, index = made.blocks, self._blocks
        self.pages.adopt(blocks, places)
        if type(blocks) is range:
            kids = index.kids[blocks.start : blocks.stop]
            parents = index.parent[blocks.start : blocks.stop]
            self.ranking.insert_range(blocks, made.heads, parents, kids, space.group, past)
        else:
            for block, use, count in zip(blocks, past.uses, past.counts, strict=True):
                self.ranking.insert(block, index.parent[block], space.group, use)
                self.ranking.recall(block, count)
        self._count(space, len(blocks))

    def seal(self, blocks: Sequence[int], event: PageEvent) -> None:
        """RESERVED or PROMOTING became readable: from now on they may be evicted."""
        self.pages.on_all(blocks, event)
        self._release(blocks)

    def unpin(self, blocks: Sequence[int]) -> None:
        self.pages.unpin(blocks)
        self._release(blocks)

    def drop(self, space: Space, block: int, event: PageEvent) -> int:
        """The page is free again (or RETIRED) and the block no longer here; answers its place."""
        place = self._leave(space, block, event)
        if event is PageEvent.FAULTED:
            self.slab.disown(place, RETIRED)
        else:
            self.slab.give_back(place)
        return place

    def quarantine(self, space: Space, block: int) -> int:
        """The block is gone, but its place is not reusable until `end_quarantine(place)`."""
        place = self._leave(space, block, PageEvent.LEASE_ENDED)
        self.slab.disown(place, QUARANTINED)
        return place

    def end_quarantine(self, place: int) -> None:
        move(PageState.QUARANTINED, PageEvent.ABANDONED)
        self.slab.give_back(place)

    # ---- room

    def bury(self, most: int) -> int:
        """Gives up pages of the dead; how many it looked at."""
        some = self.dead.take(most)
        for block in some:
            if self.pages.states[block] == PageState.SEALED:
                self.evict(range(block, block + 1))
        return len(some)

    def make_room(self, space: Space, pages: int, before: int, newcomer: int | None = None) -> bool:
        """Evicts until `pages` pages fit, or nothing is left that was last used before `before`.

        newcomer: how often what comes was asked for before, where the policy is to say whether it
        is worth what would go for it. False: it is not, and what would go stays.

        For a chain: pages freed one by one, leaves first, and taken at once would hand it its
        places in backward order. Freed together they are handed out lowest first, and a chain that
        replaces another lies in one run again.
        """
        stride = space.stride_bytes
        tries = pages + FRUITLESS_MAX
        if self.dead.going and self.slab.room(stride) < pages:
            self.bury(tries)
        while tries > 0 and (missing := pages - self.slab.room(stride)) > 0:
            fruitless = self.slab.all_rest(stride)  # what went would make no room
            gone = range(0) if fruitless else self.coldest_tail(space.group, missing, before)
            if gone:
                if newcomer is not None and not self.admits(newcomer, gone[-1]):
                    return False
                self.evict(gone)
            elif not self._empty_region(stride):
                return True
            tries -= max(1, len(gone))
        return True

    def admits(self, count: int, leaf: int) -> bool:
        """Whether a block that was asked for `count` times before is worth this leaf's room."""
        ranking = self.ranking
        head = ranking.last_use(leaf) << BLOCK_BITS | leaf
        return ranking.chooser.admits(count, ranking.count_of(leaf), head, ranking)

    def coldest_tail(self, group: int, most: int, before: int) -> range:
        """The end of a chain to give up next, at most `most` blocks, last used before
        `before`; empty where nothing may go."""
        block = self.coldest(group, before)
        if block is None:
            return range(0)
        tail = self.ranking.tail(block, most)
        states = self.pages.states_of(tail)
        return tail[len(states.rstrip(SEALED)) :]

    def coldest(self, group: int, before: int = LAST) -> int | None:
        """The leaf to give up next among those that may go."""
        while (block := self.ranking.coldest(group, before)) is not None:
            if self.pages.states[block] == PageState.SEALED:
                return block
            self.ranking.hold(block)
            self._held.add(block)
        return None

    def evict(self, blocks: range) -> None:
        """Gives up sealed pages: one block's, or those of a `coldest_tail`."""
        space = self._spaces[self._blocks.space[blocks.start]]
        assert space is not None, "a space with blocks is never dropped"
        self.pages.on_all(blocks, PageEvent.EVICTED)
        self.ranking.remove_tail(blocks)
        self._held.difference_update(blocks)
        self.dead.remove(blocks)
        self._count(space, -len(blocks))
        for place, count in self.pages.runs(blocks, space.stride_bytes, self.slab.region_bytes):
            self.slab.give_back(place, count)
        self._evicted(space, blocks)

    def _empty_region(self, stride: int) -> bool:
        """Empties the region of another page size that was used longest ago, if one is idle. One
        with too many pages for a step is emptied in parts, before there is room."""
        best: tuple[int, list[int]] | None = None
        states, last_use = self.pages.states, self.ranking.last_use
        others = sorted(self.slab.regions_of_others(stride), key=self.slab.used_in)
        for number in others[:REGIONS_WEIGHED]:
            if self.slab.used_in(number) > EMPTIED_MAX:
                continue
            held = [one for one in self.slab.owners_in(number) if one not in (FREE, RETIRED)]
            if held and all(
                owner < BLOCKS_MAX and states[owner] == PageState.SEALED for owner in held
            ):
                last = max(map(last_use, held))
                if best is None or last < best[0]:
                    best = (last, held)
        if best is None:
            self._empty_in_part(others)
            return False
        for block in best[1]:
            self.evict(range(block, block + 1))
        return True

    def _empty_in_part(self, regions: list[int]) -> None:
        """Gives up some pages of the first region that has too many for a step. The fewest come
        first, so that the next part is of the same region."""
        for number in regions:
            if self.slab.used_in(number) > EMPTIED_MAX:
                states = self.pages.states
                owners = self.slab.owners_in(number)
                sealed = (
                    o for o in owners if 0 <= o < BLOCKS_MAX and states[o] == PageState.SEALED
                )
                for block in list(islice(sealed, PART_MAX)):
                    self.evict(range(block, block + 1))
                return

    # ---- inside

    def _settle(
        self, space: Space, blocks: Sequence[int], place: int, event: PageEvent, use: int
    ) -> None:
        self.pages.on_all(blocks, event)
        self.pages.put(blocks, place, space.stride_bytes)
        parents = self._blocks.parent
        if type(blocks) is range:
            self.ranking.insert_chain(blocks, parents[blocks.start], space.group, use)
        else:
            for block in blocks:
                self.ranking.insert(block, parents[block], space.group, use)
        self._count(space, len(blocks))

    def _leave(self, space: Space, block: int, event: PageEvent) -> int:
        self.pages.on(block, event)
        self.pages.states[block] = PageState.FREE  # the block's; the place has its own end
        self.ranking.remove(block)
        self._held.discard(block)
        self.dead.remove((block,))
        self._count(space, -1)
        return self.pages.place(block)

    def _count(self, space: Space, pages: int) -> None:
        self.used_bytes += pages * space.stride_bytes
        self.used_pages += pages

    def _release(self, blocks: Sequence[int]) -> None:
        if self._held:
            for block in self._held.intersection(blocks):
                if self.pages.states[block] == PageState.SEALED:
                    self._held.remove(block)
                    self.ranking.release(block)
        self.dead.may_go(blocks, self.pages.states)
