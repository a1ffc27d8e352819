"""From a node's plan to the status of its KVCacheNode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onggi_core.quantity import format_size
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.fleet import AgentSnapshot, NodeSnapshot
from onggi_operator.placement import Rebalance
from onggi_operator.plan.grants import NodePlan
from onggi_operator.plan.rebalance import Move, Why
from onggi_operator.plan.writes import Planned
from onggi_operator.pool import Pool

GRANTS_MAX: Final = 512
MOVES_MAX: Final = 64
"""As in the schema."""

NOTHING: Final = "-"

STRUCTURE_INTERVAL_S: Final = 30.0
"""Of a node, unless the installation says otherwise."""
MEASURED_INTERVAL_S: Final = 300.0
"""A thousand nodes write three times a second for what they measure, and at most thirty times more
while all of them move memory at once; `plan.writes` has the bound on that."""


@dataclass(frozen=True, slots=True)
class ToldMove:
    """A move in words, for the statuses of its node and of its pool."""

    node: str
    uid: str
    namespace: str
    pod: str
    pool: str
    from_bytes: int
    to_bytes: int
    reason: Why
    message: str
    dry_run: bool
    field: Mapping[str, Any] = field(init=False, compare=False)
    """As a status has it."""

    def __post_init__(self) -> None:
        told = {
            "podUID": self.uid,
            "namespace": self.namespace,
            "pod": self.pod,
            "fromBytes": self.from_bytes,
            "toBytes": self.to_bytes,
            "reason": self.reason.value,
            "message": self.message,
            "dryRun": self.dry_run,
        }
        object.__setattr__(self, "field", told)


def told_moves(
    node: NodeSnapshot, plan: NodePlan, pools: Mapping[Key, Pool]
) -> tuple[ToldMove, ...]:
    """What is under way, and what would be if pools in a dry run took part."""
    done = {move.uid: move for move in plan.sharing.moves}
    advised = {move.uid: move for move in plan.advised.moves}
    agents = {agent.uid: agent for agent in node.agents}
    moves = []
    for uid in sorted(done.keys() | advised.keys()):
        agent = agents[uid]
        pool = pools.get((agent.namespace, agent.pool))
        dry = pool is not None and pool.placement.rebalance is Rebalance.DRY_RUN
        move = advised.get(uid) if dry else done.get(uid)
        if move is not None:
            moves.append(_told(node.node.name, agent, move, plan, dry_run=dry))
    return tuple(moves)


def _told(
    node: str, agent: AgentSnapshot, move: Move, plan: NodePlan, *, dry_run: bool
) -> ToldMove:
    gain = move.gain_tokens_per_s
    tokens = f"{abs(gain):.3g} tokens a second {'more' if gain >= 0 else 'fewer'} from the cache"
    promised = (plan.advised if dry_run else plan.sharing).promised
    hits = f"sharing out anew promises {min(promised, 9.99):.0%} more hits"
    message = {
        Why.BUDGET_SHRANK: f"the node has less to give, or the pool's max or quota fell; {tokens}",
        Why.ROOM: "there is memory that nobody has",
        Why.WORTH_MORE: f"{tokens}; {hits}",
        Why.WORTH_LESS: f"{tokens}, and more elsewhere; {hits}",
    }[move.why]
    return ToldMove(
        node=node,
        uid=agent.uid,
        namespace=agent.namespace,
        pod=agent.pod,
        pool=agent.pool,
        from_bytes=move.from_bytes,
        to_bytes=move.to_bytes,
        reason=move.why,
        message=message,
        dry_run=dry_run,
    )


def node_status(
    node: NodeSnapshot, plan: NodePlan, moves: Sequence[ToldMove], *, now: str
) -> Planned:
    """`now` is the wall clock as the API writes it."""
    grants = _grants(node, plan, now)
    structure = {
        "observedGeneration": node.own.generation if node.own else 1,
        "nodeUID": node.node.uid,
        "capacity": {"memoryBytes": node.node.memory_bytes, "diskBytes": node.node.disk_bytes},
        "offered": {"memoryBytes": plan.offered_bytes},
        "grants": grants[:GRANTS_MAX],
        "moves": [move.field for move in moves[:MOVES_MAX]],
    }
    return Planned(structure, lambda: _figures(node, plan, grants, moves))


def _figures(
    node: NodeSnapshot,
    plan: NodePlan,
    grants: Sequence[Mapping[str, Any]],
    moves: Sequence[ToldMove],
) -> dict[str, Any]:
    granted = sum(grant["memoryBytes"] for grant in grants)
    unheard = sum("unheard" in grant for grant in grants)
    measured = _measured(node, plan)
    moving = [move for move in moves if not move.dry_run]
    return {
        "granted": {"memoryBytes": granted},
        "measured": measured,
        "display": {
            "host": f"{format_size(granted)}/{format_size(plan.offered_bytes)}"
            + (f" ({unheard} unheard)" if unheard else ""),
            "disk": format_size(measured["heldDiskBytes"]),
            "used": format_size(measured["usedMemoryBytes"]),
            "moves": str(len(moving)) if moving else NOTHING,
        },
    }


def _grants(node: NodeSnapshot, plan: NodePlan, now: str) -> list[dict[str, Any]]:
    """What each agent is charged; of one that this operator has not heard, which the ledger charges
    all that it could hold, what was last granted, and that it was not heard."""
    same = node.own is not None and node.own.status.get("nodeUID") == node.node.uid
    before = {
        grant["podUID"]: grant
        for grant in ((node.own.status.get("grants") or ()) if node.own and same else ())
    }
    grants = []
    for agent, claim in zip(node.agents, plan.claims, strict=True):
        uid = agent.uid
        old = before.get(uid)
        unheard = claim.held_bytes is None and not claim.newborn
        known_bytes = old["memoryBytes"] if old else 0
        size = max(claim.floor_bytes, known_bytes) if unheard else claim.charged_bytes
        grant = {
            "podUID": uid,
            "namespace": agent.namespace,
            "pod": agent.pod,
            "pool": agent.pool,
            "memoryBytes": size,
            "diskBytes": agent.held.disk_bytes if agent.held else agent.sizes.disk_bytes,
            "since": old["since"] if old and known_bytes == size and "since" in old else now,
        }
        if unheard:
            grant["unheard"] = True
        if uid in plan.resizes:
            grant["resize"] = plan.resizes[uid].value
        grants.append(grant)
    return grants


def _measured(node: NodeSnapshot, plan: NodePlan) -> dict[str, int]:
    heard = [(agent.held, agent.used) for agent in node.agents if agent.held is not None]
    return {
        "agents": sum(claim.speaks for claim in plan.claims),
        "heldMemoryBytes": sum(held.host_bytes for held, _ in heard),
        "heldDiskBytes": sum(held.disk_bytes for held, _ in heard),
        "usedMemoryBytes": sum(used.host_bytes for _, used in heard),
        "usedDiskBytes": sum(used.disk_bytes for _, used in heard),
    }
