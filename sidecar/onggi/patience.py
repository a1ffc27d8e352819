"""When to try an agent again, and when to speak about it.

An agent that is gone costs an engine one attempt now and then and one log line, not one of either
per request. The wait doubles from failure to failure and is bounded, so that a restarted agent is
found within BACKOFF_MAX_S.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from onggi.clock import Clock

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_MAX_S: Final = 5.0
"""An agent container takes some seconds to come back; hits need not wait much longer than that."""

LATE_IN_A_ROW_MAX: Final = 3
"""Unanswered calls after which the connection is given up: one may be a hiccup of the disk or the
scheduler, three in a row with back-off between them are half a second of silence."""


class Patience:
    """Failures in a row, the time before which nothing is tried, and whether it was said."""

    def __init__(self, log: logging.Logger, what: str, clock: Clock) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self.failures = 0
        """Failures since the last success."""
        self._late_in_a_row = 0
        self._quiet_until_s = 0.0
        self._complained = self._answered = False

    def may_try(self) -> bool:
        return not self.failures or self._clock() >= self._quiet_until_s

    def failed(self, why: str) -> None:
        with self._lock:
            wait_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self.failures, 16))
            self.failures += 1
            self._quiet_until_s = self._clock() + wait_s
            say, self._complained = not self._complained, True
        if say:
            self._log.warning(
                "onggi: %s: %s. Requests go on without it; trying again quietly.", self._what, why
            )

    def was_late(self, why: str) -> bool:
        """A call got no answer in time. True: too many in a row, give the connection up."""
        self.failed(why)
        with self._lock:
            self._late_in_a_row += 1
            return self._late_in_a_row >= LATE_IN_A_ROW_MAX

    def went_well(self) -> None:
        """An answer came. Nothing where none had failed, so whoever hurries looks at that first."""
        if not self.failures:
            self._answered = True
            return
        with self._lock:
            again, self._answered = self._answered, True
            failures, self.failures, self._late_in_a_row = self.failures, 0, 0
            complained, self._complained = self._complained, False
        if complained:
            often = "one failure" if failures == 1 else f"{failures} failures"
            answers = "answers again" if again else "answers now,"
            self._log.warning("onggi: %s %s after %s", self._what, answers, often)
