"""What was stored, where it is, and what is gone again, for routers that listen to the engine's KV
events.

Moves between the tiers and the end of a chunk are told when the agent was asked about it
(sweep.py), or when a chunk that was told of is found missing. An engine that publishes no events
keeps nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from onggi_core.wire.locate import At

TOLD_MAX: Final = 65_536
"""Chunks whose moves and end would be told, some 250 bytes each. The oldest are forgotten first: a
router that counts on one of them is wrong until it asks."""

WAITING_MAX: Final = 16_384
"""Chunks in events that wait for the engine's next step; past it they are dropped."""


class Change(NamedTuple):
    """at: the tier that these are in now, or, removed, are not in any more."""

    names: tuple[bytes, ...]
    at: At
    removed: bool


Lies = tuple[bytes, int]
"""Our key of a chunk, and the tier that was told of last."""


class Told:
    """Of the scheduler's thread alone."""

    def __init__(self, *, listened: bool) -> None:
        self._listened = listened
        self.told: dict[bytes, Lies] = {}
        """By name; a new tuple each time that something is told."""
        self._changes: list[Change] = []
        self._waiting = 0

    def stored(self, names: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """The agent's host tier has these now, or had them already. keys: ours."""
        if self._listened:
            moves = dict.fromkeys(names, At.HOST)
            self._moved(moves, {name: (key, 0) for name, key in zip(names, keys, strict=True)})

    def missing(self, names: Iterable[bytes]) -> None:
        """These were looked for and not found."""
        if self.told:
            self._moved({name: At.NOWHERE for name in names if name in self.told})

    def reset(self) -> None:
        """Nothing that was stored is found again."""
        self.missing(tuple(self.told))

    def located(self, found: Sequence[tuple[bytes, Lies, int]]) -> None:
        """Where some of them are."""
        self._moved({name: At(at) for name, lies, at in found if lies[1] != at})

    # ---- inside

    def _moved(self, moves: dict[bytes, At], new: dict[bytes, Lies] | None = None) -> None:
        """Where chunks came before where they left: nobody who listens is without them between."""
        was = {name: self.told.get(name) or (new or {})[name] for name in moves}
        for tier in (At.HOST, At.DISK):
            came = [name for name, at in moves.items() if at == tier != was[name][1]]
            self._add(Change(tuple(came), tier, removed=False))
        for tier in (At.HOST, At.DISK):
            left = [name for name, at in moves.items() if at != tier == was[name][1]]
            self._add(Change(tuple(left), tier, removed=True))
        for name, at in moves.items():
            if at:
                self.told[name] = (was[name][0], at)
            else:
                self.told.pop(name, None)
        while len(self.told) > TOLD_MAX:
            del self.told[next(iter(self.told))]

    def _add(self, change: Change) -> None:
        if change.names and self._waiting < WAITING_MAX:
            self._waiting += len(change.names)
            self._changes.append(change)

    def take(self) -> list[Change]:
        """Since the last call."""
        changes, self._changes, self._waiting = self._changes, [], 0
        return changes
