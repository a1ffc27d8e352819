"""The ledger of a node's memory: what is promised, what is held, and who may be given how much now.

The sum that counts is of *charges*: what each agent may hold by the most that is known. An agent is
charged what it was last told and what it last said it held, whichever is more, and never less than
the node promised its pod. So a grant that shrinks frees nothing until the agent's own report shows
the memory gone, an answer that was lost on its way is no trouble, and an agent that falls silent
goes on being charged as long as it may live: without an operator it keeps what it has.

An agent that this operator never heard is charged all that it could ever hold, unless its pod is
younger than the operator: nobody else can have told it to grow. That is what makes restarts safe
without anything written down: the agents are the ledger's memory, and each tells its part with its
next report. Nothing is taken from anyone for the sake of an agent that was not heard yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(slots=True)
class Claim:
    """An agent's part of its node's memory. Nobody changes one (`AgentSnapshot` says why it is not
    frozen).

    `floor_bytes` is what it starts with, and what its pod asked of the node; `ceiling_bytes` what
    its container's limit has room for. `granted_bytes` is what it will be told, `answered_bytes`
    what it was told when it last reported, and has obeyed or will; both None as long as this
    operator told it nothing. `held_bytes` is what its last report showed, None before the first.
    `speaks` says that reports come, so that it will hear an answer; `newborn` that its pod was made
    under this operator."""

    uid: str
    floor_bytes: int
    ceiling_bytes: int
    granted_bytes: int | None
    answered_bytes: int | None
    held_bytes: int | None
    speaks: bool
    newborn: bool = False
    charged_bytes: int = field(init=False)
    """What it may hold by the most that is known. Reckoned once: a plan asks seven times."""
    listens: bool = field(init=False)
    """Whether what it is told now reaches it, and what it has is known."""

    def __post_init__(self) -> None:
        if self.held_bytes is None:
            self.charged_bytes = self.floor_bytes if self.newborn else self.ceiling_bytes
        else:
            granted_bytes, answered_bytes = self.granted_bytes or 0, self.answered_bytes or 0
            self.charged_bytes = max(
                self.floor_bytes, self.held_bytes, granted_bytes, answered_bytes
            )
        self.listens = self.speaks and self.held_bytes is not None

    @property
    def surely_held_bytes(self) -> int:
        """What others have to make way for."""
        return self.floor_bytes if self.held_bytes is None else self.charged_bytes


@dataclass(slots=True)
class Room:
    """What may still be given to agents that share one bound wider than their node."""

    bytes: int


NO_ROOMS: Final[Mapping[str, Room]] = MappingProxyType({})


def charged(claims: Iterable[Claim]) -> int:
    """By the most that is known, what agents hold together."""
    return sum(claim.charged_bytes for claim in claims)


def settle(
    claims: Sequence[Claim],
    targets: Mapping[str, int],
    offered_bytes: int,
    rooms: Mapping[str, Room] = NO_ROOMS,
) -> dict[str, int]:
    """What each agent that hears is told, on its way to its target. `rooms` are by agent, those
    of pools whose memory is bounded beyond this node; what is given here leaves them.

    Less is told at once. More is told only out of room that nobody is charged for, which a shrink
    makes when it is reported and not when it is told. Who is first in line (the least granted, so
    that nobody waits for ever) gets all it lacks before the next gets any: more room never means
    less for anyone. Whoever has no target keeps what it has."""
    heard = [claim for claim in claims if claim.listens]
    told: dict[str, int] = {}
    room_bytes = offered_bytes - charged(claims)
    for claim in sorted(heard, key=lambda claim: (claim.charged_bytes, claim.uid)):
        target = targets.get(claim.uid, claim.granted_bytes or claim.charged_bytes)
        target = max(claim.floor_bytes, min(target, claim.ceiling_bytes))
        lacking = target - claim.charged_bytes
        if lacking <= 0:
            told[claim.uid] = target
            continue
        wider = rooms.get(claim.uid)
        most = room_bytes if wider is None else min(room_bytes, wider.bytes)
        given = min(lacking, max(0, most))
        told[claim.uid] = claim.charged_bytes + given
        room_bytes -= given
        if wider is not None:
            wider.bytes -= given
    return told
