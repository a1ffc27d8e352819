"""Prompts that nobody has kept, known without asking: the board tells which first blocks there are.

Asking wakes the agent, and its answer wakes us: some 0.2 ms of a request that it brings nothing. So
the agent hears of such prompts later, many at a time; it learns from them what other sizes and
policies would have kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onggi_core.wire.frame import KEYS_MAX
from onggi_core.wire.requests import Missed

if TYPE_CHECKING:
    from onggi.link import Link
    from onggi.session import Session

TOLD_KEYS: Final = 2048
"""Keys of prompts that are told at once: a frame of 32 KiB, or of the last of them alone."""
TOLD_EVERY_S: Final = 1.0
"""As long as this they wait for others, and for the client's next call after it."""


class Misses:
    """Of a link, in one process. Thread-safe."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._chains: list[tuple[bytes, ...]] = []
        self._keys = 0
        self._since_s = 0.0

    def sure(self, keys: Sequence[bytes]) -> bool:
        """Whether no tier holds the first of these, as of now; keys: a prompt's, from its start.
        False where the agent has to be asked. What an agent that died left says nothing."""
        session = self._link.session()
        board = session.arena.board if session is not None else None
        if session is None or board is None or board.may_begin(keys[0]):
            return False
        return session.arena.is_alive()  # looked at last: it is taken back before the board is

    def note(self, keys: Sequence[bytes]) -> None:
        """Such a prompt was asked about, for the one time that it counts; of one that no call
        takes as a whole, as much as one takes."""
        chain, due = tuple(keys[:KEYS_MAX]), []
        with self._lock:
            if self._keys + len(chain) > KEYS_MAX:
                due.append(self._take())
            if not self._chains:
                self._since_s = self._link.now_s()
            self._chains.append(chain)
            self._keys += len(chain)
            if self._keys >= TOLD_KEYS:
                due.append(self._take())
        for chains in due:
            self._say(self._link.current, chains)

    def tell_if_due(self, session: Session) -> None:
        """For whoever calls now and then."""
        if self._chains and self._link.now_s() - self._since_s >= TOLD_EVERY_S:
            self.tell(session)

    def tell(self, session: Session | None) -> None:
        """Say what was not said yet. Nobody there hears nothing, nor does an agent that came after
        and is of an earlier version."""
        with self._lock:
            chains = self._take()
        self._say(session, chains)

    def _take(self) -> list[tuple[bytes, ...]]:
        """What one frame holds. Under the lock."""
        chains, self._chains, self._keys = self._chains, [], 0
        return chains

    def _say(self, session: Session | None, chains: list[tuple[bytes, ...]]) -> None:
        board = session.arena.board if session is not None else None
        if chains and session is not None and board is not None and board.tells_beginnings:
            self._link.tell(session, Missed(tuple(chains)))
