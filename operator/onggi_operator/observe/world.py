"""Everything the controller knows, changed by plain calls and read as frozen snapshots.

Nothing here awaits, so a snapshot is always of one moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from onggi_core.heartbeat import Heartbeat
from onggi_operator.kube.reflector import Key, key_of
from onggi_operator.observe.pods import Neighbour, PodView
from onggi_operator.observe.totals import Counted, Counters, Ledger, ledger_of
from onggi_operator.pool import Pool, PoolUnreadable, read_pool

AGENTS_MAX: Final = 20_000
"""Twice the largest cluster planned for, at about 2 KiB each; agents beyond are told to wait."""

POOLS_MAX: Final = 2_000
"""Pools with a status of their own; metrics have a few series for each."""

REPORTS_PER_S_MAX: Final = 500
"""A quarter of a core: a report costs 0.35 ms where a core is free and 0.6 where others drag at its
caches, TLS included (docs/performance.md). With more agents than that each of them reports less
often; 10,000 report every 20 s."""

FRESH_S_MIN: Final = 30.0
"""Six heartbeats: one lost packet, or a controller that restarts, is no outage."""

FRESH_REPORTS: Final = 3
"""Where agents report less often, so many reports may be lost before one counts as silent."""

_by_age: Final = attrgetter("created", "name")

AGENT_KEPT_S: Final = 600
"""A silent agent is remembered this long, so that one that was only cut off is not counted anew."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent's last report and when it came (monotonic)."""

    beat: Heartbeat
    at_s: float


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool and all that concerns it."""

    key: Key
    uid: str
    version: str
    generation: int
    pool: Pool | PoolUnreadable
    status: Mapping[str, Any]
    pods: tuple[PodView, ...]
    heard: Mapping[str, Heard]
    totals: Counters
    agents: Mapping[str, Counted]
    fresh_s: float
    """An agent that has not reported for longer is silent."""
    started_s: float
    """When this operator began. Until it has listened for `fresh_s`, an agent that the last one
    knew is believed to be well: a restart here is no outage there."""


@dataclass(slots=True)
class _PoolRecord:
    uid: str
    generation: int
    pool: Pool | PoolUnreadable
    status: Mapping[str, Any]
    ledger: Ledger
    version: str = ""
    heard: dict[str, Heard] = field(default_factory=dict)


class World:
    """`started` and `started_s` are when this operator began, in the API's notation and on the
    monotonic clock; `interval_s` is how often agents report while they are few."""

    def __init__(
        self,
        pods: Mapping[Key, PodView | Neighbour],
        *,
        started: str,
        started_s: float,
        interval_s: float = 5.0,
    ) -> None:
        self._started_s = started_s
        self._interval_s = interval_s
        self._pods = pods
        self._started = started
        self._pools: dict[Key, _PoolRecord] = {}
        self._readable: dict[Key, Pool] | None = None
        """What `pools` answers, until one of them changes."""
        self._agents = 0
        """Agents heard; counted anew with each snapshot."""

    def see_pool(self, body: Mapping[str, Any]) -> None:
        """A pool as it is now. The ledger is read from the status once, when the pool is new here:
        from then on it is this process that knows better."""
        meta, key = body["metadata"], key_of(body)
        status = body.get("status") or {}
        known = self._pools.get(key)
        if known is None or known.uid != meta["uid"]:
            if len(self._pools) >= POOLS_MAX:
                return
            known = _PoolRecord(meta["uid"], 0, _read(body), status, ledger_of(status))
            self._pools[key] = known
        known.generation, known.status = meta["generation"], status
        known.version = meta.get("resourceVersion", "")
        known.pool, self._readable = _read(body), None

    def lose_pool(self, key: Key) -> None:
        self._pools.pop(key, None)
        self._readable = None

    def pool(self, key: Key) -> Pool | None:
        """None when it is not there, or nobody here can read it."""
        record = self._pools.get(key)
        return record.pool if record and isinstance(record.pool, Pool) else None

    def pools(self) -> Mapping[Key, Pool]:
        """Those that can be read, as of now. Asked for each node of a round."""
        if self._readable is None:
            pools = ((key, self.pool(key)) for key in self._pools)
            self._readable = {key: pool for key, pool in pools if pool is not None}
        return self._readable

    def pool_of_pod(self, key: Key, uid: str) -> str | None:
        """The pool that a pod asks for; None when the pod is not known (yet)."""
        pod = self._pods.get(key)
        return pod.pool if isinstance(pod, PodView) and pod.uid == uid else None

    def is_there(self, key: Key, uid: str) -> bool:
        """Whether a pod that asks for a pool is seen."""
        pod = self._pods.get(key)
        return isinstance(pod, PodView) and pod.uid == uid

    def hear(self, beat: Heartbeat, *, now_s: float) -> bool:
        """Take a report in. False when there are too many agents already."""
        record = self._pools.get((beat.namespace, beat.pool))
        if record is None:
            return True
        if beat.pod_uid not in record.heard:
            if self._agents >= AGENTS_MAX:
                return False
            self._agents += 1
        pod = self._pods.get((beat.namespace, beat.pod))
        newborn = (
            isinstance(pod, PodView) and pod.uid == beat.pod_uid and pod.created > self._started
        )
        record.ledger.absorb(beat, newborn=newborn)
        record.heard[beat.pod_uid] = Heard(beat, now_s)
        return True

    def report_interval_s(self) -> float:
        """What agents are told: longer when there are many."""
        return max(self._interval_s, self._agents / REPORTS_PER_S_MAX)

    def fresh_s(self) -> float:
        """An agent that has not reported for longer is silent."""
        return max(FRESH_S_MIN, FRESH_REPORTS * self.report_interval_s())

    def snapshot(self, *, now_s: float) -> tuple[PoolSnapshot, ...]:
        """Every pool, and forget agents whose pods are gone."""
        by_pool: dict[Key, list[PodView]] = {key: [] for key in self._pools}
        for pod in self._pods.values():
            if not isinstance(pod, PodView) or pod.deleting:
                continue
            if (pods := by_pool.get((pod.namespace, pod.pool))) is not None:
                pods.append(pod)
        snapshots = tuple(
            self._one(key, record, by_pool[key], now_s)
            for key, record in sorted(self._pools.items())
        )
        self._agents = sum(len(record.heard) for record in self._pools.values())
        return snapshots

    def _one(
        self, key: Key, record: _PoolRecord, pods: list[PodView], now_s: float
    ) -> PoolSnapshot:
        alive = {pod.uid for pod in pods}
        for uid in record.heard.keys() - alive:
            if now_s - record.heard[uid].at_s >= AGENT_KEPT_S:
                del record.heard[uid]
        record.ledger.forget_all_but(alive | record.heard.keys())
        return PoolSnapshot(
            key=key,
            uid=record.uid,
            version=record.version,
            generation=record.generation,
            pool=record.pool,
            status=record.status,
            pods=tuple(sorted(pods, key=_by_age)),
            heard=dict(record.heard),
            totals=record.ledger.totals,
            agents=dict(record.ledger.agents),
            started_s=self._started_s,
            fresh_s=self.fresh_s(),
        )


def _read(body: Mapping[str, Any]) -> Pool | PoolUnreadable:
    try:
        return read_pool(body)
    except PoolUnreadable as problem:
        return problem
