"""Who leads, by a Lease: the rules, with time as an argument and nothing asked.

They are those of Kubernetes' own programs. Whoever holds the Lease writes a new time into it every
`RETRY_S`. Others look as often, and may take it once it has not changed for the time that its
holder promised, by their own clocks: no two clocks are compared. The holder goes by the moment at
which it *sent* its last renewal, and stops acting `RENEW_S` after that. So it has stopped
`LEASE_S - RENEW_S` before another may begin, whatever became of the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

LEASE_S: Final = 15
"""What a holder promises others: they take over after so long."""

RENEW_S: Final = 10.0
"""How long a holder acts by its last renewal. The rest is for writes that are on their way."""

RETRY_S: Final = 2.0
"""Between two looks or renewals; five renewals may fail before the holder stops."""

JITTER: Final = 0.2
"""Of each pause this much is drawn on top, so that candidates do not bid together."""


RELEASED_S: Final = 1
"""What a holder promises that gives the Lease up: nobody has to wait."""

TRANSITIONS_MAX: Final = 2**31 - 1
"""What the API server takes; a Lease that somebody wrote so much into stays there."""


class Standing(Enum):
    """What a candidate may do."""

    LEADING = "leading"
    UNSURE = "unsure"
    """It led, could not renew in time, and does not know that anybody else does. It may listen, and
    change nothing."""
    FOLLOWING = "following"
    VACANT = "vacant"
    """Nobody is known to lead."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as it was read. `holder` is empty where nobody has it."""

    version: str
    holder: str
    duration_s: float
    renewed: str
    transitions: int

    @property
    def released(self) -> bool:
        """Whether its last holder gave it up, and does nothing any more."""
        return not self.holder and self.duration_s == RELEASED_S


def read_lease(body: Mapping[str, Any]) -> Lease:
    """The chart makes it without a spec: nobody's."""
    spec = body.get("spec") or {}
    return Lease(
        version=body["metadata"]["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
        renewed=spec.get("renewTime") or "",
        transitions=int(spec.get("leaseTransitions") or 0),
    )


class Candidate:
    """One that wants to lead. `me` is no other's name, ever: not even of this one's next life."""

    def __init__(self, me: str) -> None:
        self.me = me
        self._lease: Lease | None = None
        self._seen_s = 0.0
        """When what the Lease says now was first seen."""
        self._until_s: float | None = None
        """How long its last renewal lets it act; None while it does not hold the Lease."""
        self._left_alone_s = float("-inf")
        """Until when a holder may be acting that was taken out of the Lease: it may not know."""

    def see(self, lease: Lease, *, now_s: float) -> None:
        """The Lease was read. `now_s` is a time after it was."""
        before = self._lease
        if before is None or _said(before) != _said(lease):
            if before is not None and before.holder not in ("", self.me, lease.holder):
                self._left_alone_s = self._seen_s + before.duration_s
            self._seen_s = now_s
        if lease.released:
            self._left_alone_s = float("-inf")
        self._lease = lease
        if lease.holder != self.me:
            self._until_s = None

    def bid(self, *, now_s: float, now: str) -> dict[str, Any] | None:
        """What to write to get or keep the Lease; None while another has it, or before it was seen.
        The version goes with it: of two that bid, one is refused."""
        lease = self._lease
        if lease is None or (lease.holder != self.me and self._is_held(lease, now_s)):
            return None
        spec: dict[str, Any] = {
            "holderIdentity": self.me,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": now,
        }
        if lease.holder != self.me:
            transitions = min(lease.transitions + 1, TRANSITIONS_MAX)
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        return {"metadata": {"resourceVersion": lease.version}, "spec": spec}

    def won(self, lease: Lease, *, sent_s: float) -> None:
        """The bid that was sent at `sent_s` was taken."""
        self._lease, self._seen_s = lease, sent_s
        self._until_s = sent_s + RENEW_S

    def release(self, *, now: str) -> dict[str, Any] | None:
        """What to write to give the Lease up, and from this moment on not to lead; None when it is
        not held."""
        held, self._until_s = self._until_s is not None, None
        if not held or self._lease is None:
            return None
        spec = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_S, "renewTime": now}
        return {"metadata": {"resourceVersion": self._lease.version}, "spec": spec}

    @property
    def holds(self) -> bool:
        """Whether it has the Lease, as far as it knows: nobody else had it since."""
        return self._until_s is not None

    def left_s(self, now_s: float) -> float:
        """How long it may act; 0 when it may not."""
        return 0.0 if self._until_s is None else max(0.0, self._until_s - now_s)

    def standing(self, now_s: float) -> Standing:
        if self.left_s(now_s) > 0:
            return Standing.LEADING
        if self.holds:
            return Standing.UNSURE
        if self._lease is not None and self._is_held(self._lease, now_s):
            return Standing.FOLLOWING
        return Standing.VACANT

    def _is_held(self, lease: Lease, now_s: float) -> bool:
        held_s = self._seen_s + lease.duration_s if lease.holder else float("-inf")
        return now_s < max(held_s, self._left_alone_s)


def _said(lease: Lease) -> tuple[str, str, int]:
    return lease.holder, lease.renewed, lease.transitions
