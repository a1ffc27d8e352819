"""Pod requests in step with grants, where the installation and the pool ask for it.

An agent may hold what its pod requests and its kubelet has taken in, and no more: a grant that is
larger waits, charged by the ledger, while the request is raised. A request falls once the agent's
own report shows the memory gone. Where a node does not take a request in, half of it is tried and
half of that; what the agent has in the end is what it is planned with, and more is asked again
later, each time after twice as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from onggi_operator.observe.agent_request import BELOW_LIMIT_BYTES, AgentRequest
from onggi_operator.observe.fleet import AgentSnapshot
from onggi_operator.placement import Resize
from onggi_operator.plan.ledger import Claim
from onggi_operator.plan.rebalance import UNIT_BYTES
from onggi_operator.pool import Pool

BLOCKED_S: Final = 300.0
BLOCKED_S_MAX: Final = 3600.0
"""What a node has no room for may be there when another pod has ended; meanwhile the others of the
node have the memory, and give it back for each try."""


class ResizeState(str, Enum):
    """Where an agent's request stands, as a KVCacheNode tells it."""

    IN_STEP = "InStep"
    IN_PROGRESS = "InProgress"
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    REFUSED = "Refused"
    NOT_ALLOWED = "NotAllowed"


PENDING: Final = {
    "Deferred": ResizeState.DEFERRED,
    "Infeasible": ResizeState.INFEASIBLE,
}
"""By the kubelet's word. Another word of a later kubelet is waited for like one that is under
way."""


BLOCKED_STATES: Final = frozenset({*PENDING.values(), ResizeState.REFUSED})


@dataclass(frozen=True, slots=True)
class Blocked:
    """An agent whose request did not come up to its grant, `times` in a row, when it had
    `given_bytes`: until `until_s` it is planned with `arena_bytes`."""

    state: ResizeState
    until_s: float
    times: int
    given_bytes: int
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class Resizing:
    """What a plan has to know beside the snapshot. `asked` is what was asked for of late, by
    agent: what is seen of a pod follows it."""

    allowed: bool = False
    asked: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, Blocked] = field(default_factory=dict)


NO_RESIZING: Final = Resizing()


@dataclass(frozen=True, slots=True)
class AskMemory:
    """One pod's agent is to request so much."""

    uid: str
    namespace: str
    pod: str
    memory_bytes: int
    grows: bool


def request_of(one: AgentSnapshot, pool: Pool | None, resizing: Resizing) -> AgentRequest | None:
    """The request that has to be in step; None where none has to."""
    wanted = pool is not None and pool.placement.resize is Resize.REQUESTS
    if not resizing.allowed or not wanted or one.request is None:
        return None
    asked_bytes = resizing.asked.get(one.uid)
    return one.request if asked_bytes is None else replace(one.request, asked_bytes=asked_bytes)


def bounded(one: AgentSnapshot, claim: Claim, resizing: Resizing) -> Claim:
    """An agent that is blocked has no more to come to than its node lets its pod request; what it
    holds it keeps."""
    blocked = resizing.blocked.get(one.uid)
    if blocked is None or not claim.listens:
        return claim
    held_bytes = one.held.host_bytes if one.held is not None else 0
    most_bytes = max(claim.floor_bytes, blocked.arena_bytes, held_bytes)
    return replace(claim, ceiling_bytes=min(claim.ceiling_bytes, most_bytes))


def plan_resizes(
    agents: Sequence[AgentSnapshot],
    claims: Sequence[Claim],
    told: Mapping[str, int],
    requests: Mapping[str, AgentRequest],
    blocked: Mapping[str, Blocked],
) -> tuple[AskMemory, ...]:
    """After the ledger settled. `requests` are of those that have to be in step. What an agent was
    told and may not hold yet counts as much as what it holds: the request is to be there first."""
    if not requests:
        return ()
    asks = []
    for one, claim in zip(agents, claims, strict=True):
        request = requests.get(one.uid)
        if request is None or not claim.listens or one.deleting:
            continue
        size_bytes = max(claim.charged_bytes, told.get(one.uid, 0))
        wanted_bytes = request.goes_with(size_bytes)
        if (at_most := blocked.get(one.uid)) is not None:
            most_bytes = max(request.given_bytes, request.goes_with(at_most.arena_bytes))
            wanted_bytes = min(wanted_bytes, most_bytes)
        grows = wanted_bytes > request.asked_bytes
        if wanted_bytes == request.asked_bytes or not (grows or _has_shrunk(claim, told)):
            continue
        asks.append(AskMemory(one.uid, one.namespace, one.pod, wanted_bytes, grows))
    return tuple(asks)


def _has_shrunk(claim: Claim, told: Mapping[str, int]) -> bool:
    """A shrink is one change of the request and not one for each report on the way there."""
    return claim.charged_bytes <= max(claim.floor_bytes, told.get(claim.uid, 0))


def resize_state(one: AgentSnapshot, pool: Pool | None, resizing: Resizing) -> ResizeState | None:
    """None where nobody asks for it, or nothing can change."""
    if pool is None or pool.placement.resize is Resize.OFF or one.request is None:
        return None
    if not resizing.allowed:
        return ResizeState.NOT_ALLOWED
    if (blocked := resizing.blocked.get(one.uid)) is not None:
        return blocked.state
    asked_bytes = resizing.asked.get(one.uid, one.request.asked_bytes)
    in_step = asked_bytes == one.request.given_bytes
    return ResizeState.IN_STEP if in_step else ResizeState.IN_PROGRESS


def blocked_by(request: AgentRequest, before: Blocked | None, *, now_s: float) -> Blocked | None:
    """Whether an agent's kubelet has said no to what is asked; None when it has not, or that is
    known."""
    state = PENDING.get(request.pending)
    if state is None or request.asked_bytes <= request.given_bytes:
        return None
    lowered = before is not None and now_s < before.until_s
    if before is not None and lowered and _arena(request) > before.arena_bytes:
        return None
    return block(state, request, before, now_s=now_s)


def block(
    state: ResizeState, request: AgentRequest, before: Blocked | None, *, now_s: float
) -> Blocked:
    """Half of what was too much is tried next, until there is no half. Once an agent came up to
    more than it had when it was blocked, it is a first time again."""
    has_bytes = request.backs()
    half_bytes = max(0, _arena(request) - has_bytes) // 2 // UNIT_BYTES * UNIT_BYTES
    arena_bytes = has_bytes + half_bytes
    if before is not None and now_s < before.until_s:
        return replace(before, state=state, arena_bytes=arena_bytes)
    again = before is not None and before.given_bytes >= request.given_bytes
    times = before.times + 1 if before is not None and again else 1
    wait_s = min(BLOCKED_S_MAX, BLOCKED_S * 2.0 ** min(times - 1, 10))
    return Blocked(state, now_s + wait_s, times, request.given_bytes, arena_bytes)


def _arena(request: AgentRequest) -> int:
    """What is asked for is for an arena of that size."""
    if request.asked_bytes >= request.limit_bytes - BELOW_LIMIT_BYTES:
        return request.limit_bytes - request.overhead_bytes
    return request.asked_bytes - request.overhead_bytes
