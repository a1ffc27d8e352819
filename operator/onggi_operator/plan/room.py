"""Which nodes have room for one more agent of a pool at its largest, so that new pods may be drawn
there."""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from onggi_operator.observe.fleet import NodeSnapshot
from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.census import Census
from onggi_operator.plan.grants import NodePlan
from onggi_operator.plan.ledger import charged
from onggi_operator.pool import Pool

ROOM_NODES_MAX: Final = 10
"""As in the schema, and as many as a pod names: it is copied into each new one."""


def room_of(node: NodeSnapshot, plan: NodePlan) -> int | None:
    """What of a node's offer nobody is charged for. None for nodes that are no choice: that pods
    are to leave, that are not ready, and those on which no agent ever ran, since most of these can
    run none (they have no GPU)."""
    known = node.own is not None or bool(node.agents)
    if not known or node.node.leaving or not node.node.ready:
        return None
    return max(0, plan.offered_bytes - charged(plan.claims))


def plan_room(
    world: PoolSnapshot, pods: Census, rooms: Mapping[str, int], *, now_s: float
) -> list[str]:
    """The status's `roomNodes`, by name; `rooms` has the roomiest first. Who is on the list stays
    as long as it has room, so that pools' statuses do not change with every grant; then nodes where
    the pool's agents run, and those with the most room. None for a pool whose pods ask for all that
    their agents may ever have: the scheduler knows of that. An operator that begins believes the
    last one until every agent had time to report, for until then it charges them all that they
    could hold."""
    pool = world.pool
    if not isinstance(pool, Pool) or pool.memory.min_bytes >= pool.memory.max_bytes:
        return []
    listed = world.status.get("roomNodes") or ()
    if now_s - world.started_s <= world.fresh_s:
        return list(listed)
    homes = {beat.node for beat in pods.beats}
    wanted_bytes, chosen = pool.memory.max_bytes, dict[str, None]()
    for name in chain(listed, (name for name in rooms if name in homes), rooms):
        if len(chosen) == ROOM_NODES_MAX:
            break
        if rooms.get(name, 0) >= wanted_bytes:
            chosen[name] = None
    return sorted(chosen)
