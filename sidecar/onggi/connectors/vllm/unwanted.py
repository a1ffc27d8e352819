"""Loads that were cancelled before the agent had answered.

The pin that a late answer brings is given back by the step that reads it. An engine that makes no
step would leave it to the end of the lease; so it goes on as long as one may come.
"""

from __future__ import annotations

from collections.abc import Iterable

from onggi.pending import PendingLoad


class Unwanted:
    def __init__(self) -> None:
        self._owed: list[PendingLoad] = []

    def note(self, cancelled: Iterable[PendingLoad]) -> None:
        self._owed += [pending for pending in cancelled if pending.owed]

    @property
    def any(self) -> bool:
        """No longer than the longest wait that a load was given."""
        if self._owed:
            self._owed = [pending for pending in self._owed if pending.owed]
        return bool(self._owed)
