"""A node's plan: what it offers, and what each agent on it is told."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from onggi_operator.kube.reflector import Key
from onggi_operator.observe.agent_request import AgentRequest
from onggi_operator.observe.fleet import AgentSnapshot, NodeSnapshot
from onggi_operator.placement import Rebalance, Resize
from onggi_operator.plan.claims import claim_of
from onggi_operator.plan.ledger import Claim, Room, settle
from onggi_operator.plan.quotas import QuotaShare
from onggi_operator.plan.rebalance import UNIT_BYTES, Sharing, Taker, Why, share_out
from onggi_operator.plan.resizes import (
    NO_RESIZING,
    AskMemory,
    ResizeState,
    Resizing,
    bounded,
    plan_resizes,
    request_of,
    resize_state,
)
from onggi_operator.plan.worth import worth_of
from onggi_operator.pool import Medium, Pool

SHARE_DEFAULT: Final = 0.5
"""Of what no pod on the node asked for."""

NO_QUOTAS: Final[Mapping[Key, QuotaShare]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodePlan:
    """`told` is what agents are told; `moved` those whose turn it was. `advised` is the sharing if
    pools that only want to be told were moved as well; the same as `sharing` without such."""

    node: str
    offered_bytes: int
    claims: tuple[Claim, ...]
    told: Mapping[str, int]
    moved: frozenset[str]
    sharing: Sharing
    advised: Sharing
    looked: bool
    """Whether this round looked at who should have more."""
    grown: Mapping[Key, int]
    """What was given to agents of each pool whose quota bounds memory."""
    backed: Mapping[str, int] = field(default_factory=dict)
    """Of agents whose requests are to be in step, the largest arena that is requested."""
    asks: tuple[AskMemory, ...] = ()
    """Requests that are to change."""
    resizes: Mapping[str, ResizeState] = field(default_factory=dict)


def offered_bytes(node: NodeSnapshot, *, share: float) -> int:
    """What somebody set for the node, or what agents' pods asked for and a share of what nobody
    asked for. At least what was promised to pods, which the scheduler has made sure of."""
    promised = sum([agent.sizes.memory_bytes for agent in node.agents])
    if node.own is not None and node.own.offer_bytes is not None:
        return max(promised, node.own.offer_bytes)
    spare = max(0, node.node.memory_bytes - node.requested_bytes)
    return promised + int(share * spare) // UNIT_BYTES * UNIT_BYTES


def plan_node(
    node: NodeSnapshot,
    pools: Mapping[Key, Pool],
    *,
    now_s: float,
    fresh_s: float,
    share: float = SHARE_DEFAULT,
    quotas: Mapping[Key, QuotaShare] = NO_QUOTAS,
    settled: bool = True,
    resizing: Resizing = NO_RESIZING,
) -> NodePlan:
    """The same snapshot and time give the same plan. `fresh_s`: an agent that has not reported for
    longer does not hear. `quotas` are what is left of each pool's, by this moment. On a node that
    is not `settled` there may be agents that nobody knows, so nobody is given more."""
    offered = offered_bytes(node, share=share)
    pairs = [(one, pools.get((one.namespace, one.pool))) for one in node.agents]
    requests = _requests(pairs, resizing)
    claims = [claim_of(one, pool, now_s, fresh_s) for one, pool in pairs]
    if quotas:
        claims = [_capped(*two, quotas) for two in zip(node.agents, claims, strict=True)]
    if resizing.blocked:
        claims = [bounded(*two, resizing) for two in zip(node.agents, claims, strict=True)]
    budget = offered - sum([c.surely_held_bytes for c in claims if not c.listens])
    looked = settled and node.since_look_s >= _interval_s(pairs)

    def takers(*allowed: Rebalance) -> list[Taker]:
        return [
            _taker(one, pool, claim, looked and _is_turn(one, pool, now_s), allowed, now_s)
            for (one, pool), claim in zip(pairs, claims, strict=True)
            if claim.listens
        ]

    sharing = share_out(takers(Rebalance.AUTO), budget)
    advised = sharing
    if Rebalance.DRY_RUN in [pool.placement.rebalance for _, pool in pairs if pool is not None]:
        advised = share_out(takers(Rebalance.AUTO, Rebalance.DRY_RUN), budget)
    rooms = _rooms(node.agents, quotas) if quotas else {}
    by_agent = {
        one.uid: rooms[key]
        for one in (node.agents if rooms else ())
        if (key := (one.namespace, one.pool)) in rooms
    }
    told = settle(claims, sharing.sizes, offered if settled else 0, by_agent)
    return NodePlan(
        node=node.node.name,
        offered_bytes=offered,
        claims=tuple(claims),
        told=told,
        moved=frozenset(
            move.uid for move in sharing.moves if move.why in (Why.WORTH_MORE, Why.WORTH_LESS)
        ),
        sharing=sharing,
        advised=advised,
        looked=looked,
        grown={key: (quotas[key].room_bytes or 0) - room.bytes for key, room in rooms.items()},
        backed={uid: request.backs() for uid, request in requests.items()},
        asks=plan_resizes(node.agents, claims, told, requests, resizing.blocked),
        resizes=_resize_states(pairs, resizing),
    )


def _requests(
    pairs: Sequence[tuple[AgentSnapshot, Pool | None]], resizing: Resizing
) -> dict[str, AgentRequest]:
    if not resizing.allowed:
        return {}
    found = ((one.uid, request_of(one, pool, resizing)) for one, pool in pairs)
    return {uid: request for uid, request in found if request is not None}


def _resize_states(
    pairs: Sequence[tuple[AgentSnapshot, Pool | None]], resizing: Resizing
) -> dict[str, ResizeState]:
    off = Resize.OFF
    states = [
        (one.uid, resize_state(one, pool, resizing))
        for one, pool in pairs
        if pool is not None and pool.placement.resize is not off
    ]
    return {uid: state for uid, state in states if state is not None}


def _rooms(agents: Iterable[AgentSnapshot], quotas: Mapping[Key, QuotaShare]) -> dict[Key, Room]:
    """Of the pools that have agents here and a bound on memory."""
    here = {(one.namespace, one.pool) for one in agents} & quotas.keys()
    bounds = {key: quotas[key].room_bytes for key in here}
    return {key: Room(room_bytes) for key, room_bytes in bounds.items() if room_bytes is not None}


def _capped(one: AgentSnapshot, claim: Claim, quotas: Mapping[Key, QuotaShare]) -> Claim:
    """Of agents that listen; what others may hold is what it is."""
    quota = quotas.get((one.namespace, one.pool))
    if quota is None or (cap := quota.caps.get(claim.uid)) is None:
        return claim
    return replace(claim, ceiling_bytes=max(claim.floor_bytes, min(claim.ceiling_bytes, cap)))


def _interval_s(pairs: Sequence[tuple[AgentSnapshot, Pool | None]]) -> float:
    """The shortest of the node's pools: memory can only change hands between agents that are looked
    at together. None of them is moved more often than its own pool says."""
    return min([pool.placement.interval_s for _, pool in pairs if pool is not None], default=0.0)


def _is_turn(one: AgentSnapshot, pool: Pool | None, now_s: float) -> bool:
    """Not twice in an interval; never an agent that is on its way out."""
    if pool is None or one.deleting or one.draining:
        return False
    return one.moved_s is None or now_s - one.moved_s >= pool.placement.interval_s


def _taker(
    one: AgentSnapshot,
    pool: Pool | None,
    claim: Claim,
    turn: bool,  # noqa: FBT001 - a plain fact of the agent
    allowed: Sequence[Rebalance],
    now_s: float,
) -> Taker:
    moves = pool is not None and pool.placement.rebalance in allowed
    worth = None
    if pool is not None and moves:
        disk = one.sizes.disk_bytes if pool.disk else 0
        worth = worth_of(one.curve, tokens_per_s=one.tokens_per_s, disk_bytes=disk)
    now_bytes = claim.charged_bytes if one.target_bytes is None else one.target_bytes
    if worth is None:
        # An even share is reckoned anew each round: what was meant for it while others were not
        # heard yet, and never granted, is not its own.
        now_bytes = min(now_bytes, claim.charged_bytes)
    return Taker(
        one.uid,
        claim.floor_bytes,
        max(claim.floor_bytes, _ramped(one, pool, claim, now_s, now_bytes)),
        now_bytes,
        pool.placement.step_bytes if pool is not None and turn else 0,
        pool.placement.threshold_percent / 100 if pool is not None else 0.0,
        worth,
    )


def _ramped(
    one: AgentSnapshot, pool: Pool | None, claim: Claim, now_s: float, now_bytes: int
) -> int:
    """A new agent's ceiling grows with its age: an empty one must not draw what warm ones use. What
    it has already (this operator may be the new one) it keeps. One on its way out gets no more."""
    if pool is None or one.deleting or one.draining:
        return min(claim.ceiling_bytes, now_bytes)
    ramp_s = pool.lifecycle.ramp_up_s
    age_s = now_s - one.began_s
    if age_s >= ramp_s:
        return claim.ceiling_bytes
    grown = int((claim.ceiling_bytes - claim.floor_bytes) * age_s / ramp_s)
    ramped = claim.floor_bytes + grown // UNIT_BYTES * UNIT_BYTES
    return min(claim.ceiling_bytes, max(ramped, now_bytes))


def disk_limit_bytes(pool: Pool, sizes_bytes: int) -> int | None:
    """What a running agent's disk may hold: less than it was made for where the pool gives less
    now. None where there is nothing to say."""
    if pool.disk is None or pool.disk.medium is Medium.CLAIM_TEMPLATE or not sizes_bytes:
        return None
    return min(sizes_bytes, pool.disk.max_bytes)
