"""Rounds of observe, plan, apply: pools' statuses and Events."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from onggi_operator.apply.evictions import evict
from onggi_operator.apply.status import write_status
from onggi_operator.apply.together import Write, together
from onggi_operator.gates import GateKeeper
from onggi_operator.kube.backoff import Backoff
from onggi_operator.kube.client import (
    ApiClient,
    ApiError,
    Busy,
    Conflict,
    NotFound,
    Unreachable,
)
from onggi_operator.kube.reflector import Key
from onggi_operator.node_rounds import NodeRounds
from onggi_operator.observe.pods import Neighbour, PodView
from onggi_operator.observe.world import PoolSnapshot, World
from onggi_operator.plan.restarts import AGAIN_S, plan_restarts
from onggi_operator.plan.status import plan_status
from onggi_operator.plan.writes import (
    STRUCTURE_INTERVAL_S,
    WRITES_PER_ROUND_MAX,
    Waiting,
    due_of,
    first_of,
)
from onggi_operator.resizer import Resizer
from onggi_operator.round_times import RoundTimes
from onggi_operator.settings import ControllerSettings
from onggi_operator.telling import Teller

ROUND_S: Final = 2.0
"""Between rounds; a round over 10,000 pods takes 200 ms (measured)."""

REST_S: Final = 1.0
"""At least so long between rounds, however long writing took: writes wait for their turn
(`kube.pace`), and plans are not to wait with them."""

log = logging.getLogger(__name__)


def wall_clock() -> str:
    """Now, as the API writes times."""
    return api_time(datetime.now(UTC))


def api_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Reconciler:
    """Rounds of snapshot, plan, apply. While the API server is away or busy nodes are planned all
    the same, since agents go on reporting; what would be written waits, longer each time. For the
    first interval counters are not written: what the last operator wrote is as good until every
    agent has been heard."""

    def __init__(
        self,
        api: ApiClient,
        world: World,
        nodes: NodeRounds,
        pods: Mapping[Key, PodView | Neighbour],
        resizer: Resizer,
        settings: ControllerSettings,
        times: RoundTimes,
        dice: random.Random,
    ) -> None:
        self._api = api
        self._world = world
        self._nodes = nodes
        self._pods = pods
        self._interval_s = settings.status_interval_s
        self._times = times
        self._resizer = resizer
        self._written_s: dict[Key, float] = {}
        self._teller = Teller(api)
        self._gates = GateKeeper(api, nodes.agent_of) if settings.warm_gates else None
        self._started_s = time.monotonic()
        self._restarts_missed = settings.restart_missed
        self._evicted_s: dict[tuple[str, str, str], float] = {}
        self._backoff = Backoff(dice)
        self._write_again_s = 0.0

    async def run(self) -> None:
        while True:
            await self._nodes.plan(now=wall_clock())
            planned_s = time.monotonic()
            if time.monotonic() >= self._write_again_s:
                try:
                    await self._write_all()
                    self._backoff.succeeded()
                except Unreachable as fault:
                    asked_s = fault.retry_after_s if isinstance(fault, Busy) else 0.0
                    wait_s = self._backoff.failed(asked_s=asked_s)
                    self._write_again_s = time.monotonic() + wait_s
                    log.warning("writing ended early: %s", fault, extra={"retry_s": wait_s})
            self._times.end()
            await asyncio.sleep(max(REST_S, ROUND_S - (time.monotonic() - planned_s)))

    async def _write_all(self) -> None:
        """One write that is refused keeps no other from being made. Raises Unreachable."""
        now_s, now = time.monotonic(), wall_clock()
        asking = [pod for pod in self._pods.values() if isinstance(pod, PodView)]
        made = await self._resizer.write(now_s=now_s)
        if self._gates is not None:
            made += await self._gates.open(asking, self._world.pools(), now_s=now_s, now=now)
        with self._times.planning():
            pools = await self._plan_pools(now_s, now)
        waiting = [*pools, *self._nodes.due()]
        await together([write() for write in first_of(waiting, WRITES_PER_ROUND_MAX - made)])
        await self._teller.tell_pods(asking, now=now)
        if self._restarts_missed:
            await self._restart_missed(asking, now_s)

    async def _plan_pools(self, now_s: float, now: str) -> list[Waiting[Write]]:
        """Pools whose status is to be written."""
        snapshot = self._world.snapshot(now_s=now_s)
        keys = {pool.key for pool in snapshot}
        self._written_s = {key: at_s for key, at_s in self._written_s.items() if key in keys}
        node_uids, moves = self._nodes.node_uids(), self._nodes.moves()
        due: list[Waiting[Write]] = []
        for pool in snapshot:
            wanted = plan_status(
                pool,
                now_s=now_s,
                now=now,
                moves=moves[pool.key],
                node_uids=node_uids,
                allocated=self._nodes.allocation_of(pool.key),
                rooms=self._nodes.rooms,
            )
            found = due_of(
                wanted,
                pool.status,
                since_write_s=now_s - self._written_s.get(pool.key, self._started_s),
                happened_after_s=STRUCTURE_INTERVAL_S,
                counted_after_s=self._interval_s,
            )
            if found is not None:
                write = partial(self._write, pool, found[1], now_s, now)
                due.append(Waiting(found[0], self._written_s.get(pool.key, 0.0), write))
            await self._times.breathe()
        return due

    async def _restart_missed(self, pods: Sequence[PodView], now_s: float) -> None:
        tried_s = {owner: at_s for owner, at_s in self._evicted_s.items() if now_s - at_s < AGAIN_S}
        self._evicted_s = tried_s
        for one in plan_restarts(pods, self._world.pools(), tried_s, now_s=now_s):
            self._evicted_s[one.owner] = now_s
            try:
                outcome = await evict(self._api, one)
            except ApiError as refused:
                log.error("missed pod not evicted: %s", refused, extra={"pod": one.pod})
                continue
            log.info("eviction of a missed pod: %s", outcome.name, extra={"pod": one.pod})

    async def _write(
        self, pool: PoolSnapshot, wanted: Mapping[str, Any], now_s: float, now: str
    ) -> None:
        self._written_s[pool.key] = now_s
        try:
            await write_status(self._api, pool, wanted)
            await self._teller.tell_pool(pool, wanted["conditions"], now_s=now_s, now=now)
        except (NotFound, Conflict) as gone:
            # Deleted, made anew or changed meanwhile; the watch tells which.
            log.info("status not written: %s", gone, extra={"pool": "/".join(pool.key)})
        except ApiError as refused:
            log.error("status refused: %s", refused, extra={"pool": "/".join(pool.key)})
