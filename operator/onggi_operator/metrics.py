"""Metrics of pools, drawn from a snapshot at each scrape: series of a pool go when it goes. Labels
are namespace and pool, never a pod."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from onggi_operator.observe.world import PoolSnapshot
from onggi_operator.plan.census import census

LABELS = ("namespace", "pool")

QUOTA_FIELDS = {"host": "memoryBytes", "disk": "diskBytes"}

CONDITION_VALUES = {"True": 1, "False": 0, "Unknown": -1}
"""One series a condition, and an unknown that no alert on 0 takes for trouble."""


class PoolMetrics(Collector):
    """`pools` is asked at each scrape."""

    def __init__(
        self, pools: Callable[[], Iterable[PoolSnapshot]], clock: Callable[[], float]
    ) -> None:
        self._pools = pools
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering does not look at a world that is not there yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        pods = GaugeMetricFamily(
            "onggi_pool_pods", "Pods that ask for the pool.", labels=(*LABELS, "state")
        )
        capacity = _bytes("onggi_pool_capacity_bytes", "Bytes that agents hold.")
        used = _bytes("onggi_pool_used_bytes", "Bytes that hold blocks.")
        hard = _bytes("onggi_pool_quota_bytes", "Bytes that the pool's quota gives.")
        taken = _bytes("onggi_pool_quota_used_bytes", "Bytes that are taken of the quota.")
        hits = CounterMetricFamily(
            "onggi_pool_hit_blocks", "Blocks served.", labels=(*LABELS, "tier")
        )
        misses = CounterMetricFamily("onggi_pool_miss_blocks", "Blocks not held.", labels=LABELS)
        saved = CounterMetricFamily(
            "onggi_pool_tokens_saved", "Prompt tokens not computed again.", labels=LABELS
        )
        conditions = GaugeMetricFamily(
            "onggi_pool_condition",
            "A condition of the pool, as its status says: 1 True, 0 False, -1 Unknown.",
            labels=(*LABELS, "type"),
        )
        for pool in self._pools():
            key = pool.key
            seen = census(pool, now_s=self._clock())
            for state in ("matched", "injected", "ready", "skipped", "missed"):
                pods.add_metric((*key, state), len(getattr(seen, state)))
            for family, sizes in (
                (capacity, [beat.capacity for beat in seen.beats]),
                (used, [beat.used for beat in seen.beats]),
            ):
                family.add_metric((*key, "host"), sum(size.host_bytes for size in sizes))
                family.add_metric((*key, "disk"), sum(size.disk_bytes for size in sizes))
            for family, part in ((hard, "hard"), (taken, "used")):
                sizes_of = (pool.status.get("quota") or {}).get(part) or {}
                for tier, name in QUOTA_FIELDS.items():
                    if name in sizes_of:
                        family.add_metric((*key, tier), sizes_of[name])
            hits.add_metric((*key, "host"), pool.totals.host_blocks)
            hits.add_metric((*key, "disk"), pool.totals.disk_blocks)
            misses.add_metric(key, pool.totals.miss_blocks)
            saved.add_metric(key, pool.totals.tokens_saved)
            for told in pool.status.get("conditions") or ():
                conditions.add_metric((*key, told["type"]), CONDITION_VALUES[told["status"]])
        yield from (pods, capacity, used, hard, taken, hits, misses, saved, conditions)


def _bytes(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(*LABELS, "tier"))


def tell_leading(leads: Callable[[], bool], registry: CollectorRegistry) -> None:
    """`leads` is asked at each scrape."""
    gauge = Gauge("onggi_operator_leading", "1 in the operator that leads.", registry=registry)
    gauge.set_function(leads)
