"""What a client holds: its spaces, its stores and its loads. All of it ends with its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi_core.engine.space import Space

TICKETS_MAX: Final = 4096
"""Stores and loads one client may have open: a page or a run each, more than any batch."""


class Store:
    """Pages reserved for one STORE_PREPARE, until it completes."""

    __slots__ = ("blocks", "deadline_s", "over", "quarantined", "session", "space", "ticket")

    def __init__(
        self, ticket: int, session: int, space: Space, blocks: Sequence[int], deadline_s: float
    ) -> None:
        self.ticket = ticket
        self.session = session
        self.space = space
        self.blocks = blocks
        self.deadline_s = deadline_s
        self.quarantined: list[int] | None = None
        """Places of its pages once the lease ran out: they rest, and completing seals nothing."""
        self.over = False
        """The client writes to its pages no more, and they are on their way to be free."""


class Room(Store):
    """Pages granted ahead of a store: of no block until STORE_FILL says of which."""

    __slots__ = ("rows",)

    def __init__(
        self, ticket: int, session: int, space: Space, rows: Sequence[tuple[int, int]], due_s: float
    ) -> None:
        """rows: where pages begin that lie one after the other, and how many do."""
        super().__init__(ticket, session, space, (), due_s)
        self.rows = rows

    @property
    def pages(self) -> int:
        return sum(count for _, count in self.rows)

    @property
    def nbytes(self) -> int:
        return self.pages * self.space.stride_bytes

    def split(self, pages: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Its rows up to so many pages, and those behind them."""
        first, rest, step = [], [], self.space.stride_bytes
        for place, count in self.rows:
            taken = min(count, pages)
            pages -= taken
            if taken:
                first.append((place, taken))
            if taken < count:
                rest.append((place + taken * step, count - taken))
        return first, rest

    def places(self) -> list[int]:
        """Where its pages begin, in the order in which they are filled."""
        step = self.space.stride_bytes
        return [place + n * step for place, count in self.rows for n in range(count)]


class Load:
    """A run of blocks for one LOAD_PREPARE: pinned as they arrive, answered when all have."""

    __slots__ = (
        "asked",
        "counted",
        "deadline_s",
        "from_disk",
        "request_id",
        "rows",
        "runs",
        "session",
        "spaces",
        "ticket",
        "unready",
    )

    def __init__(self, ticket: int, session: int, request_id: int, spaces: list[Space]) -> None:
        self.ticket = ticket
        self.session = session
        self.request_id = request_id
        self.spaces = spaces
        self.asked = 0
        self.counted = False
        """Whether this load is what its prompt is counted by."""
        self.rows = 0
        """Blocks it has or waits for."""
        self.runs: list[Sequence[int]] = [()] * len(spaces)
        """The same blocks in each space, `rows` of them: all pinned but those in `unready`."""
        self.unready: dict[int, int] = {}
        """Blocks that have not arrived -> their row."""
        self.from_disk = 0
        self.deadline_s = 0.0


class Session:
    __slots__ = ("announces", "engine", "loads", "number", "pid", "room_bytes", "spaces", "stores")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.engine = ""
        self.spaces: list[Space] = []
        """Empty until HELLO."""
        self.announces = False
        """It sends PREFETCH when a prompt arrives: prompts are counted there, once each, and not by
        the LOAD_PREPAREs that follow."""
        self.room_bytes = 0
        """Granted to it ahead of stores."""
        self.stores: set[int] = set()
        self.loads: set[int] = set()

    @property
    def tickets(self) -> int:
        return len(self.stores) + len(self.loads)
