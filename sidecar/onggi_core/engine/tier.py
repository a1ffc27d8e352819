"""Room in one tier, and who gives it up when there is none."""

from __future__ import annotations

from collections.abc import Callable

from onggi_core.engine.space import Space, TierName
from onggi_core.page import Block, Page, PageEvent, PageState
from onggi_core.slab import Slab

Evicted = Callable[[Space, Block, int], None]
"""Called for each block that lost its page in this tier, after it did, with the page's place."""


class Tier:
    """Places blocks on pages and keeps the ranking of each space in step with the table of moves.

    One rule holds everywhere: a page that is not SEALED is held in its space's ranking, so the
    policy can only ever name a page that may go.
    """

    def __init__(self, name: TierName, region_bytes: int, evicted: Evicted) -> None:
        self.name = name
        self.slab = Slab(region_bytes)
        self.used_bytes = 0
        self.pages = 0
        self._evicted = evicted
        self._owner: dict[int, tuple[Space, Page]] = {}
        self._spaces: dict[int, list[Space]] = {}

    def add_space(self, space: Space) -> None:
        self._spaces.setdefault(space.stride_bytes, []).append(space)

    def remove_space(self, space: Space) -> None:
        """An empty space that nobody uses is no longer ranked here."""
        self._spaces[space.stride_bytes].remove(space)

    def place(self, space: Space, block: Block, event: PageEvent, use: int) -> Page | None:
        """A page for `block` in the state `event` leads to, evicting if need be; None: no room."""
        ranking = space.ranking(self.name)
        ranking.insert(block.key, block.parent, use)
        ranking.hold(block.key)  # so that making room for it cannot evict it or its parents
        place = self.slab.take(space.stride_bytes)
        while place is None:
            fruitless = self.slab.all_rest(space.stride_bytes)  # what went would make no room
            if (fruitless or not self._evict_one(space.stride_bytes)) and (
                not self._empty_region(space)
            ):
                ranking.remove(block.key)
                return None
            place = self.slab.take(space.stride_bytes)
        return self._own(space, block, place, event)

    def make_room(self, space: Space, pages: int, use: int) -> None:
        """Evicts until `pages` pages fit, or nothing is left that was last used before `use`.

        For a chain: pages freed one by one, leaves first, and taken at once would hand it its
        places in backward order. Freed together they are handed out lowest first, and a chain that
        replaces another lies in one run again.
        """
        missing = pages - self.slab.room(space.stride_bytes)
        while missing > 0 and self._evict_one(space.stride_bytes, before=use):
            missing -= 1

    def adopt(self, space: Space, block: Block, place: int, use: int) -> Page:
        """A block of an earlier life whose place the slab already took."""
        space.ranking(self.name).insert(block.key, block.parent, use)
        return self._own(space, block, place, PageEvent.ADOPTED)

    def seal(self, space: Space, page: Page, event: PageEvent) -> None:
        """RESERVED or PROMOTING became readable: from now on it may be evicted."""
        page.on(event)
        space.ranking(self.name).release(page.block.key)

    def pin(self, space: Space, page: Page) -> None:
        page.on(PageEvent.PINNED)
        page.pins += 1
        if page.pins == 1:
            space.ranking(self.name).hold(page.block.key)

    def unpin(self, space: Space, page: Page) -> None:
        page.pins -= 1
        if page.pins == 0:
            page.on(PageEvent.LAST_UNPINNED)
            space.ranking(self.name).release(page.block.key)

    def drop(self, space: Space, page: Page, event: PageEvent) -> None:
        """The page is free again (or RETIRED) and the block is no longer here."""
        page.on(event)
        self._disown(space, page)
        if event is not PageEvent.FAULTED:
            self.slab.give_back(page.place)

    def quarantine(self, space: Space, page: Page) -> None:
        """The block is gone, but its place is not reusable until `end_quarantine`."""
        page.on(PageEvent.LEASE_ENDED)
        self._disown(space, page)

    def end_quarantine(self, page: Page) -> None:
        page.on(PageEvent.ABANDONED)
        self.slab.give_back(page.place)

    def pages_in(self, region: int) -> list[tuple[Space, Page]]:
        """Pages in use within a region."""
        begin = region * self.slab.region_bytes
        stride = self.slab.stride_of(region)
        places = range(begin, begin + self.slab.region_bytes - stride + 1, stride)
        return [self._owner[place] for place in places if place in self._owner]

    def _own(self, space: Space, block: Block, place: int, event: PageEvent) -> Page:
        page = Page(block, place)
        page.on(event)
        self._owner[place] = (space, page)
        self.used_bytes += space.stride_bytes
        self.pages += 1
        block_page_set(block, self.name, page)
        return page

    def _disown(self, space: Space, page: Page) -> None:
        space.ranking(self.name).remove(page.block.key)
        del self._owner[page.place]
        self.used_bytes -= space.stride_bytes
        self.pages -= 1
        block_page_set(page.block, self.name, None)

    def _evict_one(self, stride: int, before: int | None = None) -> bool:
        """Gives up the coldest leaf among the spaces of one page size. before: only one that was
        last used earlier than that."""
        coldest: tuple[int, bytes, Space] | None = None
        for space in self._spaces.get(stride, ()):
            found = space.ranking(self.name).coldest()
            if found is not None and (coldest is None or found[0] < coldest[0]):
                coldest = (*found, space)
        if coldest is None or (before is not None and coldest[0] >= before):
            return False
        _, key, space = coldest
        self._evict(space, space.blocks[key])
        return True

    def _empty_region(self, space: Space) -> bool:
        """Empties the region of another page size that was used longest ago, if one is idle."""
        best: tuple[int, int] | None = None
        for region in self.slab.regions_of_others(space.stride_bytes):
            held = self.pages_in(region)
            if held and all(page.state is PageState.SEALED for _, page in held):
                last = max(s.ranking(self.name).last_use(p.block.key) for s, p in held)
                if best is None or last < best[0]:
                    best = (last, region)
        if best is None:
            return False
        for owner, page in self.pages_in(best[1]):
            self._evict(owner, page.block)
        return True

    def _evict(self, space: Space, block: Block) -> None:
        page = block.disk if self.name is TierName.DISK else block.host
        assert page is not None
        self.drop(space, page, PageEvent.EVICTED)
        self._evicted(space, block, page.place)


def block_page_set(block: Block, tier: TierName, page: Page | None) -> None:
    if tier is TierName.HOST:
        block.host = page
    else:
        block.disk = page
