"""Events from other threads, handed to the loop in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from onggi_core.engine.events import Event

EVENTS_PER_TURN: Final = 64
"""Events taken in one turn of the loop, at some 10 us each: a burst of disk completions holds a
lookup up by less than a millisecond."""


class Mailbox:
    """`post` is for any thread. What comes before `open` waits for it: the arena is touched while
    the disk tier is still being read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[Event] = deque()
        self._step: Callable[[Event], None] | None = None
        self._scheduled = False

    def open(self, step: Callable[[Event], None]) -> None:
        """From now on each event goes to `step`, on the loop."""
        self._step = step
        self._take()

    def post(self, event: Event) -> None:
        """Leave an event. One after the loop was closed has nobody to go to and is dropped."""
        self._posted.append(event)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise

    def _take(self) -> None:
        self._scheduled = False
        if self._step is None:
            return
        for _ in range(min(EVENTS_PER_TURN, len(self._posted))):
            self._step(self._posted.popleft())
        if self._posted and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._take)
