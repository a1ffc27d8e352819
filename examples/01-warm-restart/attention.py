"""Ctrl-C, heard at the places where the demo waits and nowhere else.

A signal sets a flag and wakes the wait. So no exception can come between making a thing and
writing down that it has to be removed, and a second Ctrl-C cannot disturb the clearing up.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Final

HEARD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Somebody asked the demo to stop."""


class Attention:
    """One a process, in its main thread. Handlers and pipe are put back at the end."""

    def __init__(self) -> None:
        self._asked = False
        self._wake_out, self._wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Attention:
        self._before = {number: signal.getsignal(number) for number in HEARD}
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        for number, before in self._before.items():
            if before is not signal.SIG_IGN:  # nohup and `&` of a script mean it
                signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(-1)
        os.close(self._wake_out)
        os.close(self._wake_in)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def wait(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Those of `fds` that can be read, or none when the time is over. Raises Interrupted."""
        if self._asked:
            raise Interrupted
        ready, _, _ = select.select([self._wake_out, *fds], [], [], max(0.0, timeout_s))
        if self._asked:
            raise Interrupted
        return [fd for fd in ready if fd != self._wake_out]

    def sleep(self, duration_s: float) -> None:
        """Raises Interrupted."""
        until_s = time.monotonic() + duration_s
        while (left_s := until_s - time.monotonic()) > 0:
            self.wait((), left_s)
