"""Events and errands from other threads, handed to the data plane in order."""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from onggi_core.engine.events import Event

EVENTS_A_TURN: Final = 4
"""Events taken in one turn of the plane. The end of a run of 64 pages takes a tenth of a
millisecond, and clients get a turn after each few of them."""

Errand = Callable[[], None]


class Mailbox:
    """`post` and `send` are for any thread, also before the plane runs and after it ended: the
    arena is touched while the disk tier is still being read, and a hung disk job may end late."""

    def __init__(self) -> None:
        self.number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._posted: deque[Event] = deque()
        self._errands: deque[Errand] = deque()
        self._lock = threading.Lock()
        self._rung = False

    def post(self, event: Event) -> None:
        """Leave an event. One after close() has nobody to go to and is dropped."""
        self._posted.append(event)
        self.ring()

    def send(self, errand: Errand) -> None:
        """Leave something to be done by the plane, before events that are there already."""
        self._errands.append(errand)
        self.ring()

    def ring(self) -> None:
        """Wake the plane, once for all that was left since it last looked."""
        if self._rung:
            return
        with self._lock:
            if self.number >= 0:
                self._rung = True
                os.eventfd_write(self.number, 1)

    def take(self, step: Callable[[Event], None]) -> None:
        """Plane only: run the errands, and `step` with a turn's worth of events."""
        with self._lock:
            if self._rung:
                os.eventfd_read(self.number)
                self._rung = False  # from here on whoever leaves something rings again
        while self._errands:
            self._errands.popleft()()
        try:
            for _ in range(min(EVENTS_A_TURN, len(self._posted))):
                step(self._posted.popleft())
        finally:
            if self._posted:
                self.ring()

    def close(self) -> None:
        """Plane only, at its end. Errands that are left are run, so that nobody waits for them."""
        with self._lock:
            number, self.number = self.number, -1
        os.close(number)
        while self._errands:
            self._errands.popleft()()
