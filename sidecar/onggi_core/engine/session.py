"""What a client holds: its spaces, its stores and its loads. All of it ends with its stream."""

from __future__ import annotations

from typing import Final

from onggi_core.engine.space import Space
from onggi_core.page import Page

TICKETS_MAX: Final = 4096
"""Stores and loads one client may have open: a page or a run each, more than any batch."""


class Store:
    """Pages reserved for one STORE_PREPARE, until it completes."""

    __slots__ = ("deadline_s", "lapsed", "pages", "session", "space", "ticket")

    def __init__(
        self, ticket: int, session: int, space: Space, pages: list[Page], deadline_s: float
    ) -> None:
        self.ticket = ticket
        self.session = session
        self.space = space
        self.pages = pages
        self.deadline_s = deadline_s
        self.lapsed = False
        """The lease ran out: the pages are in quarantine, and completing seals nothing."""


class Load:
    """A run of blocks for one LOAD_PREPARE: pinned as they arrive, answered when all have."""

    __slots__ = (
        "asked",
        "deadline_s",
        "from_disk",
        "pinned",
        "request_id",
        "rows",
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
        self.rows: list[list[Page]] = []
        """rows[b][s]: the page of block b in space s."""
        self.unready: dict[Page, int] = {}
        """Pages that have not arrived -> the block they belong to."""
        self.pinned: set[Page] = set()
        self.from_disk = 0
        self.deadline_s = 0.0


class Session:
    __slots__ = ("announces", "engine", "loads", "number", "pid", "spaces", "stores")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.engine = ""
        self.spaces: list[Space] = []
        """Empty until HELLO."""
        self.announces = False
        """It sends PREFETCH when a prompt arrives: prompts are counted there, once each, and not by
        the LOAD_PREPAREs that follow."""
        self.stores: set[int] = set()
        self.loads: set[int] = set()

    @property
    def tickets(self) -> int:
        return len(self.stores) + len(self.loads)
