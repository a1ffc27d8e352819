"""How far a prefix can be restored where a model has several pools, each with a rule of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LOOKS_MAX: Final = 256
"""Pages of one pool that are asked for one by one, from the end of the prefix: some 20 ms. States
of a window lie sparse, so no one question tells where the last whole one ends."""

STOPS_MAX: Final = 8
"""Ends of whole windows that are looked for. Ranks keep the same of them as a rule, and meet at
the longest that all have."""


def trailing_stops(exists: Callable[[int], bool], pages: int, window: int) -> list[int]:
    """Lengths of prefixes, up to `pages`, whose last `window` pages exist: the longest ones, in
    ascending order. exists(i): whether page i does; asked at most LOOKS_MAX times, once a page."""
    stops: list[int] = []
    run, lowest = 0, max(0, pages - LOOKS_MAX)
    for page in range(pages - 1, lowest - 1, -1):
        run = run + 1 if exists(page) else 0
        if run >= window:
            stops.append(page + window)
        if len(stops) == STOPS_MAX:
            return sorted(stops)
    if not lowest:  # prefixes that are shorter than the window: all of their pages
        stops += range(min(run, window - 1), 0, -1)
    return sorted(stops[:STOPS_MAX])
