"""What was stored and what is gone again, for routers that listen to the engine's KV events.

The agent says nothing when it gives a block up, so the end of a chunk is told when one that was
told of is found missing. An engine that publishes no events keeps nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

TOLD_MAX: Final = 65_536
"""Chunks whose end would be told, some 150 bytes each. The oldest are forgotten first: a router
that counts on one of them is wrong until it asks."""

WAITING_MAX: Final = 16_384
"""Chunks in events that wait for the engine's next step; past it they are dropped."""


class Change(NamedTuple):
    names: tuple[bytes, ...]
    removed: bool


class Told:
    """Of the scheduler's thread alone."""

    def __init__(self, *, listened: bool) -> None:
        self._listened = listened
        self._told: dict[bytes, None] = {}
        self._changes: list[Change] = []
        self._waiting = 0

    def stored(self, names: Iterable[bytes]) -> None:
        """The agent has these now, or had them already."""
        if not self._listened:
            return
        new = tuple(name for name in names if name not in self._told)
        self._told.update(dict.fromkeys(new))
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._add(Change(new, removed=False))

    def missing(self, names: Iterable[bytes]) -> None:
        """These were looked for and not found."""
        if not self._told:
            return
        gone = tuple(name for name in names if name in self._told)
        for name in gone:
            del self._told[name]
        self._add(Change(gone, removed=True))

    def reset(self) -> None:
        """Nothing that was stored is found again."""
        self.missing(tuple(self._told))

    def _add(self, change: Change) -> None:
        if change.names and self._waiting < WAITING_MAX:
            self._waiting += len(change.names)
            self._changes.append(change)

    def take(self) -> list[Change]:
        """Since the last call."""
        changes, self._changes, self._waiting = self._changes, [], 0
        return changes
