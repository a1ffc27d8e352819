"""Bringing values up to the device before anybody asks: a thread, and a bounded queue."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

from onggi_library.manager.steps import Step

QUEUE_BYTES_MAX: Final = 100_000_000
"""Of values that wait to come up, the one on its way included."""
QUEUE_MAX: Final = 4096
"""And how many: small ones cost more than their bytes."""

Bring = Callable[[Step, int], None]


def weakly(bring: Bring) -> Bring:
    """A method that does not keep its object alive; nothing is brought where that is gone."""
    method = weakref.WeakMethod(bring)

    def bring_if_there(step: Step, serial: int) -> None:
        if (there := method()) is not None:
            there(step, serial)

    return bring_if_there


class Ahead:
    """`bring` is called with the step and serial of one value at a time, in the order in which they
    were asked for, on a thread that begins with the first and ends with close()."""

    def __init__(self, bring: Bring) -> None:
        self._bring = bring
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Step, int]] = deque()
        self._bytes: dict[int, int] = {}
        """Of the values that wait, and of the one that is on its way."""
        self._coming = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def nbytes(self) -> int:
        return sum(self._bytes.values())

    def add(self, step: Step, serial: int, nbytes: int) -> bool:
        """False: the queue is full, and the value comes when it is asked for."""
        with self._changed:
            if serial in self._bytes:
                return True
            full = self.nbytes + nbytes > QUEUE_BYTES_MAX or len(self._bytes) >= QUEUE_MAX
            if full or self._closed:
                return False
            self._waiting.append((step, serial))
            self._bytes[serial] = nbytes
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onggi-ahead", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def wait_for(self, serial: int) -> None:
        """If a value is on its way, until it is there; one that only waits is taken out."""
        with self._changed:
            if serial in self._bytes and serial != self._coming:
                self._waiting = deque(one for one in self._waiting if one[1] != serial)
                del self._bytes[serial]
            while self._coming == serial:
                self._changed.wait()

    def wait_until_idle(self) -> None:
        with self._changed:
            while self._bytes:
                self._changed.wait()

    def close(self) -> None:
        self.let_go()
        if self._thread is not None:
            self._thread.join()

    def let_go(self) -> None:
        """As close(), but for waiting: the thread ends after the value that it brings."""
        with self._changed:
            self._closed = True
            for _, serial in self._waiting:
                del self._bytes[serial]
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                step, serial = self._waiting.popleft()
                self._coming = serial
            try:
                self._bring(step, serial)
            finally:
                with self._changed:
                    self._coming = 0
                    del self._bytes[serial]
                    self._changed.notify_all()
