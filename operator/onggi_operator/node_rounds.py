"""A round over all nodes: look, plan, grant, and write what a person should see of it."""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from onggi_operator.apply.nodes import write_node
from onggi_operator.apply.together import Write
from onggi_operator.kube.client import ApiClient, ApiError, Conflict
from onggi_operator.kube.reflector import Key
from onggi_operator.observe.fleet import AgentSnapshot, Fleet, NodeSnapshot
from onggi_operator.observe.pods import PodView
from onggi_operator.observe.world import World
from onggi_operator.plan.allocation import (
    NOTHING_KNOWN,
    Allocation,
    NodeFindings,
    gathered,
    look_at,
)
from onggi_operator.plan.grants import NodePlan, plan_node
from onggi_operator.plan.nodes import (
    MEASURED_INTERVAL_S,
    STRUCTURE_INTERVAL_S,
    ToldMove,
    node_status,
    told_moves,
)
from onggi_operator.plan.quotas import QuotaShare, plan_quota
from onggi_operator.plan.room import room_of
from onggi_operator.plan.writes import Due, Waiting, due_of
from onggi_operator.resizer import Resizer
from onggi_operator.round_times import RoundTimes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    node: NodeSnapshot
    status: dict[str, Any]
    due: Due


class NodeRounds:
    """`clock` is monotonic; `share` is the part of unrequested memory that agents may have;
    `interval_s` the shortest time between two writes of one node; `resizer` keeps pods' requests
    in step with grants."""

    def __init__(
        self,
        api: ApiClient,
        world: World,
        fleet: Fleet,
        clock: Callable[[], float],
        times: RoundTimes,
        resizer: Resizer,
        *,
        share: float,
        interval_s: float = STRUCTURE_INTERVAL_S,
    ) -> None:
        self._api = api
        self._world = world
        self._fleet = fleet
        self._clock = clock
        self._times = times
        self._resizer = resizer
        self._share = share
        self._interval_s = interval_s
        self._moves: dict[str, tuple[ToldMove, ...]] = {}
        """Of each node, as last looked at."""
        self._quotas: dict[Key, QuotaShare] = {}
        """Of each pool with a quota, as last shared out."""
        self._allocations: dict[Key, Allocation] = {}
        """Of pools, as last planned, without their quotas."""
        self.rooms: dict[str, int] = {}
        """Of nodes that new pods may come to, what nobody is charged for; the roomiest first."""
        self._due: list[_Write] = []
        self._written_s: dict[str, float] = {}

    async def plan(self, *, now: str) -> None:
        """Grant what is to be granted, and note what is to be written. Asks nobody, so it goes on
        while the API server is away."""
        with self._times.planning():
            names = self._fleet.look(now_s=self._clock())
            self._resizer.begin(now_s=self._clock())
            there = set(names)
            self._moves = {n: moves for n, moves in self._moves.items() if n in there}
            self._written_s = {n: at_s for n, at_s in self._written_s.items() if n in there}
            self.rooms = {n: room for n, room in self.rooms.items() if n in there}
            self._share_quotas()
            self._due = []
            found: list[NodeFindings] = []
            for name in names:
                write = self._plan(name, now, found)
                if write is not None:
                    self._due.append(write)
                await self._times.breathe()
            self._allocations = gathered(found)
            self.rooms = dict(sorted(self.rooms.items(), key=lambda one: (-one[1], one[0])))

    def due(self) -> list[Waiting[Write]]:
        """What the last plan noted; each raises Unreachable."""
        return [
            Waiting(
                one.due,
                self._written_s.get(one.node.node.name, 0.0),
                partial(self._write, one),
            )
            for one in self._due
        ]

    def node_uids(self) -> dict[str, str]:
        """Nodes that there are, by name."""
        return self._fleet.node_uids()

    def moves(self) -> dict[Key, list[ToldMove]]:
        """Moves of pools' agents, by pool, each in the order of the nodes' names."""
        found: dict[Key, list[ToldMove]] = defaultdict(list)
        for _, moves in sorted(self._moves.items()):
            for move in moves:
                found[move.namespace, move.pool].append(move)
        return found

    def quota_of(self, pool: Key) -> QuotaShare | None:
        """What is taken of a pool's quota; None where it has none."""
        return self._quotas.get(pool)

    def agent_of(self, pod: PodView) -> AgentSnapshot | None:
        """A pod's agent as it is at this moment."""
        return self._fleet.agent(pod)

    def allocation_of(self, pool: Key) -> Allocation:
        """What is known of a pool's memory, as last planned."""
        known = self._allocations.get(pool, NOTHING_KNOWN)
        return replace(known, quota=self._quotas.get(pool))

    def _share_quotas(self) -> None:
        """What is charged only falls until the next round, but for what is granted in this one and
        for pods that come: those are promised their min whatever others hold."""
        now_s, fresh_s = self._clock(), self._world.fresh_s()
        shares = {}
        for key, pool in self._world.pools().items():
            if pool.quota.bounds:
                agents, before = self._fleet.members(key), self._quotas.get(key)
                shares[key] = plan_quota(agents, pool, before, now_s=now_s, fresh_s=fresh_s)
        self._quotas = shares

    def _plan(self, name: str, now: str, found: list[NodeFindings]) -> _Write | None:
        """Between a node's snapshot and its grants nothing is awaited: an answer given meanwhile
        would be one that the plan does not know of."""
        now_s = self._clock()
        node = self._fleet.node(name, now_s=now_s)
        if node is None:
            return None
        pools = self._world.pools()
        fresh_s = self._world.fresh_s()
        plan = plan_node(
            node,
            pools,
            now_s=now_s,
            fresh_s=fresh_s,
            share=self._share,
            quotas=self._quotas,
            settled=node.node.is_settled(now),
            resizing=self._resizer.look(node.agents, pools, now_s=now_s),
        )
        self._resizer.note(plan.asks)
        for key, grown_bytes in plan.grown.items():
            self._quotas[key] = self._quotas[key].less(grown_bytes)
        found.append(look_at(node, plan, now_s=now_s))
        if (room_bytes := room_of(node, plan)) is None:
            self.rooms.pop(name, None)
        else:
            self.rooms[name] = room_bytes
        self._fleet.grant(
            plan.sharing.sizes, plan.told, plan.moved, now_s=now_s, backed=plan.backed
        )
        if plan.looked:
            self._fleet.looked(name, now_s=now_s)
            self._moves[name] = told_moves(node, plan, pools)
        if node.own is None and not node.agents:
            return None
        return self._write_of(node, plan, now, now_s)

    def _write_of(
        self, node: NodeSnapshot, plan: NodePlan, now: str, now_s: float
    ) -> _Write | None:
        name = node.node.name
        due = due_of(
            node_status(node, plan, self._moves.get(name, ()), now=now),
            node.own.status if node.own else {},
            since_write_s=now_s - self._written_s.get(name, float("-inf")),
            happened_after_s=self._interval_s,
            counted_after_s=MEASURED_INTERVAL_S,
        )
        return _Write(node, due[1], due[0]) if due is not None else None

    async def _write(self, write: _Write) -> None:
        node, own = write.node.node, write.node.own
        self._written_s[node.name] = self._clock()
        try:
            await write_node(self._api, node, own, write.status)
        except Conflict as changed:
            log.info("KVCacheNode not written: %s", changed, extra={"node": node.name})
        except ApiError as refused:
            log.error("KVCacheNode not written: %s", refused, extra={"node": node.name})
