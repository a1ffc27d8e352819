"""Pages of a context in an agent's tiers. What is not found again is an error, never a guess.

What fits is counted before it is sent; how it is sent, and all waiting, is the carrier's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from onggi_core.identity import ROOT
from onggi_core.quantity import spell_bytes
from onggi_core.wire.requests import SpaceSpec
from onggi_library.carrier import Carrier, Says
from onggi_library.coming import Ahead
from onggi_library.context.errors import ContextLost, NoRoom, NotInTime
from onggi_library.context.pages import Pages, Plain
from onggi_library.manager.ledger import Ledger
from onggi_library.manager.pages import Cut

SAYS: Final = Says("context", ContextLost, NotInTime)


class PageStore:
    """Pages of one space. May be called from two threads, one of which only fetches."""

    def __init__(
        self, socket: str | os.PathLike[str], space: SpaceSpec, pages: Pages | None = None
    ) -> None:
        """pages: how rows lie in them; as they are if None. Raises ContextLost if no agent
        answers, and ValueError for pages that it cannot take."""
        self._page_bytes = space.page_bytes
        self._pages = pages or Plain()
        self._carrier = Carrier(os.fspath(socket), SAYS)
        try:
            _check_page(space, self._carrier.extent_bytes)
        except ValueError:
            self._carrier.close()
            raise
        self._client = self._carrier.client(space)
        self._ahead = Ahead()
        self._ledger = Ledger(*self._carrier.rooms)

    def put(
        self, keys: Sequence[bytes], rows: Any, *, parent: bytes = ROOT, depth: int = 0
    ) -> None:
        """Keep rows, a page a key, that follow the `depth` pages up to `parent`. Returns when they
        are kept.
        Raises NoRoom and NotInTime with none of them kept, ContextLost if nobody answers."""
        pages = list(self._pages.of(rows, len(keys)))
        self._count_in(len(keys))
        try:
            self._carrier.store(self._client, keys, pages, parent, depth)
        except NotInTime:
            self.discard(keys)
            raise

    def fetch(self, keys: Sequence[bytes], rows: Any) -> None:
        """Fill rows, a page a key, in host memory. Raises NotInTime, ContextLost."""
        pages = self._pages.room_for(rows, len(keys))
        each, came = list(pages), 0
        if (coming := self._ahead.pop(keys[0])) is not None:
            came = self._carrier.take(coming, each)
        came += self._carrier.load(self._client, keys[came:], each[came:])[1]
        if came < len(keys):
            raise ContextLost(
                f"some of {len(keys)} blocks that were kept are gone; nothing was computed from "
                "the others: compute the context again"
            )
        self._pages.give(pages, rows)

    def expect(self, chains: Sequence[Sequence[bytes]]) -> None:
        """These will be fetched next, in this order: what lies on disk comes meanwhile. Nothing
        else is kept coming."""
        self._ahead.keep_only({keys[0] for keys in chains})
        for keys in chains:
            if keys[0] not in self._ahead:
                coming = self._carrier.begin(self._client, keys, self._ahead.pages)
                if coming is not None:
                    self._ahead.add(keys[0], coming)

    def holds(self, keys: Sequence[bytes]) -> bool:
        """Whether all of these are there."""
        return self._carrier.holds(self._client, keys)

    def discard(self, keys: Sequence[bytes]) -> None:
        """They are worth nothing to anybody from now on."""
        if keys:
            self._ahead.keep_only(())  # a page that is pinned does not go
            self._client.discard(keys)
            self._ledger.discard(self._cut(len(keys)))

    def adopt(self, pages: int) -> None:
        """So many were there before; they take room too."""
        self._ledger.add(self._cut(pages))

    def until_written(self) -> None:
        """All that was stored is on disk, where there is one. Raises NotInTime, ContextLost."""
        self._carrier.until_written()

    def stats(self) -> dict[str, Any]:
        """See Client.stats."""
        return self._carrier.stats()

    def close(self) -> None:
        self._ahead.keep_only(())
        self._client.close()
        self._carrier.close()

    # ---- inside

    def _cut(self, pages: int) -> Cut:
        return Cut(self._page_bytes, pages)

    def _count_in(self, pages: int) -> None:
        wanted = self._cut(pages)
        if not self._ledger.fits(wanted) and self._ledger.anything_dying:
            self._carrier.until_gone()
            self._ledger.all_gone()
        if not self._ledger.fits(wanted):
            raise self._no_room(pages)
        self._ledger.add(wanted)

    def _no_room(self, pages: int) -> NoRoom:
        ledger = self._ledger
        return NoRoom(
            f"{spell_bytes(pages * self._page_bytes)} more do not fit: "
            f"{spell_bytes(ledger.live_bytes)} are kept, and the larger of host memory and disk "
            f"holds {spell_bytes(ledger.room_bytes)}; give the agent more, or use a shorter "
            "context or fewer sequences"
        )


def _check_page(space: SpaceSpec, extent_bytes: int) -> None:
    """A block of one layer and sequence is a page, and a page lies in one extent."""
    if space.page_bytes > extent_bytes:
        most = extent_bytes * space.block_tokens // space.page_bytes
        right = f"use up to {most}" if most else "give it an agent with larger extents"
        raise ValueError(
            f"block_tokens is {space.block_tokens}, and so many of one layer and sequence are "
            f"{spell_bytes(space.page_bytes)}; this agent takes blocks of up to "
            f"{spell_bytes(extent_bytes)}, its extent: {right}"
        )
