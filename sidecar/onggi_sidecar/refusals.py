"""What clients are told no to: counted, told in the log, and the last one kept for the doctor.

A client that was refused comes again every few seconds, and a wrong one asks as fast as it can, so
what is logged of them is bounded; what is counted is not.
"""

from collections.abc import Callable
from typing import Final

from onggi_core.wire.frame import FATAL, Op, Status
from onggi_sidecar.log import warn
from onggi_sidecar.tally import Tally

SAID_AT_ONCE: Final = 8
"""Lines in a row; as many clients as an engine of eight ranks has are each told of."""
SAID_EVERY_S: Final = 60.0
"""Then one in as long as that, with how many were left out before it."""


class Refusals:
    """Of one agent. All of it runs on the plane."""

    def __init__(self, tally: Tally, clock: Callable[[], float]) -> None:
        self._tally = tally
        self._clock = clock
        self._may_say = float(SAID_AT_ONCE)
        self._since_s = clock()
        self._unsaid = 0

    def count(self, op: int, status: Status, sentence: str, *, session: int) -> None:
        """A request was refused. Whose HELLO is, or who finds no room, has no session at all."""
        self._tally.fault("bad_frame" if status in FATAL else "bad_request")
        if op == Op.HELLO or (not op and status is Status.TOO_MANY):
            self._tally.refuse_client(sentence)
        now_s = self._clock()
        earned = (now_s - self._since_s) / SAID_EVERY_S
        self._may_say, self._since_s = min(SAID_AT_ONCE, self._may_say + earned), now_s
        if self._may_say < 1:
            self._unsaid += 1
            return
        self._may_say -= 1
        unsaid, self._unsaid = self._unsaid, 0
        more = {"unsaid": unsaid} if unsaid else {}
        warn("client_refused", sentence, session=session, status=status.name, **more)
