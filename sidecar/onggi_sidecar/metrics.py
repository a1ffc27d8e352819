"""Metrics through the OpenTelemetry SDK, in Prometheus' format. Explained in docs/agent.md.

The engine already counts everything, so nearly every instrument is observed, not recorded: a
scrape reads one snapshot. No label holds a pod, a key or anything a client sends.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from onggi_core.wire.frame import Op
from onggi_sidecar.tally import Tally

Figures = Mapping[str, Any]
Snapshot = Callable[[], Figures]
_Parts = tuple[tuple[str, dict[str, str]], ...]
"""Keys of the snapshot, each with the labels of its series."""

_BUCKETS_S: Final = (
    0.00001, 0.00002, 0.00004, 0.00008, 0.00016, 0.00032, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0,
)  # fmt: skip
"""Around the 80 us that a lookup of 128 blocks may take, up to what a wait for disk takes."""

_DISK_BUCKETS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""From a small page on a fast NVMe to a disk that hangs."""

_OP_NAMES: Final = {int(op): op.name.lower() for op in Op}

ERROR_KINDS: Final = (
    "bad_frame", "bad_request", "corrupt", "disk_lacks_room", "disk_late", "disk_queue_full",
    "disk_unavailable", "heartbeat_bug", "http_crowded", "late_load", "lease_ended", "no_space",
    "not_inherited", "out_of_descriptors", "read_fault", "slow_client", "table_damaged",
    "too_many_tickets", "write_fault",
)  # fmt: skip
"""All are there from the first scrape, as 0: what appears as 1 has no increase to alert on."""

_COUNTERS: Final[tuple[tuple[str, str, str, _Parts], ...]] = (
    # name, unit, what it counts, ((key in the snapshot, labels), ...)
    ("onggi_lookup_requests", "", "Loads asked for", (("lookup_requests", {}),)),
    ("onggi_lookup_blocks", "", "Blocks named by loads", (("lookup_blocks", {}),)),
    (
        "onggi_hit_blocks",
        "",
        "Blocks loaded and used, by the tier they came from",
        (("hit_host_blocks", {"tier": "host"}), ("hit_disk_blocks", {"tier": "disk"})),
    ),
    ("onggi_miss_blocks", "", "Blocks asked for and not offered", (("miss_blocks", {}),)),
    ("onggi_saved_tokens", "", "Tokens not computed again", (("tokens_saved", {}),)),
    ("onggi_stored_blocks", "", "Blocks stored", (("stored_blocks", {}),)),
    ("onggi_unseen_prompts", "", "Prompts too many to learn from", (("unseen_prompts", {}),)),
    ("onggi_refused_blocks", "", "Blocks without room", (("refused_blocks", {}),)),
    (
        "onggi_unadmitted_blocks",
        "",
        "Blocks that the policy turned away, by tier",
        (
            ("unadmitted_host_blocks", {"tier": "host"}),
            ("unadmitted_disk_blocks", {"tier": "disk"}),
        ),
    ),
    (
        "onggi_moved_bytes",
        "",
        "Page bytes by tier and direction",
        (
            ("stored_bytes", {"tier": "host", "direction": "in"}),
            ("loaded_bytes", {"tier": "host", "direction": "out"}),
            ("written_bytes", {"tier": "disk", "direction": "in"}),
            ("read_bytes", {"tier": "disk", "direction": "out"}),
        ),
    ),
    (
        "onggi_evicted_blocks",
        "",
        "Blocks given up to make room, by tier",
        (("evicted_host_blocks", {"tier": "host"}), ("evicted_disk_blocks", {"tier": "disk"})),
    ),
    ("onggi_prefetched_blocks", "", "Blocks brought in on a hint", (("prefetched_blocks", {}),)),
    (
        "onggi_prefetch_ended_blocks",
        "",
        "Blocks brought in on a hint, by what became of them",
        (
            ("prefetch_useful_blocks", {"end": "useful"}),
            ("prefetch_late_blocks", {"end": "late"}),
            ("prefetch_useless_blocks", {"end": "useless"}),
        ),
    ),
    (
        "onggi_unwritten_blocks",
        "",
        "Blocks given up before they were on disk",
        (("unwritten_blocks", {}),),
    ),
)

_GAUGES: Final[tuple[tuple[str, str, _Parts], ...]] = (
    ("onggi_arena_ready_bytes", "Arena touched and offered", (("arena_ready_bytes", {}),)),
    (
        "onggi_capacity_bytes",
        "What each tier may hold now",
        (("arena_budget_bytes", {"tier": "host"}), ("disk_budget_bytes", {"tier": "disk"})),
    ),
    (
        "onggi_used_bytes",
        "Bytes that pages take in each tier",
        (("host_used_bytes", {"tier": "host"}), ("disk_used_bytes", {"tier": "disk"})),
    ),
    ("onggi_sessions", "Clients connected", (("sessions", {}),)),
    ("onggi_open_stores", "Stores not completed", (("open_stores", {}),)),
    ("onggi_open_loads", "Loads not completed", (("open_loads", {}),)),
    ("onggi_disk_jobs", "Disk jobs not ended", (("disk_jobs", {}),)),
    ("onggi_disk_stuck_jobs", "Disk jobs past their deadline", (("disk_stuck_jobs", {}),)),
    ("onggi_disk_no_space", "1 while the filesystem is full", (("disk_no_space", {}),)),
    ("onggi_disk_table_bytes", "Size of the disk tier's page table", (("disk_table_bytes", {}),)),
)


class Metrics:
    """One registry for one agent. `render` is for the loop: it reads the engine's state."""

    def __init__(
        self, snapshot: Snapshot, tally: Tally, disk_seconds: deque[tuple[str, float]]
    ) -> None:
        self._snapshot = snapshot
        self._tally = tally
        self._disk_timings = disk_seconds
        self._figures: Figures = {}
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=self._registry
        )
        self._provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
        meter = self._provider.get_meter("onggi")
        for name, unit, help_text, parts in _COUNTERS:
            meter.create_observable_counter(
                name, callbacks=[self._observer(parts)], unit=unit, description=help_text
            )
        for name, help_text, parts in _GAUGES:
            meter.create_observable_gauge(
                name, callbacks=[self._observer(parts)], description=help_text
            )
        meter.create_observable_counter(
            "onggi_errors", callbacks=[self._errors], description="Faults by kind"
        )
        meter.create_observable_counter(
            "onggi_requests", callbacks=[self._requests], description="Requests by operation"
        )
        self._seconds = meter.create_histogram(
            "onggi_request_seconds",
            description="Time to handle a request, one in 16 of them",
            explicit_bucket_boundaries_advisory=list(_BUCKETS_S),
        )

        self._disk_seconds = meter.create_histogram(
            "onggi_disk_job_seconds",
            description="Time a disk job ran, waiting not included",
            explicit_bucket_boundaries_advisory=list(_DISK_BUCKETS_S),
        )

    def render(self) -> bytes:
        """The page a scrape reads."""
        self._figures = self._snapshot()
        while self._tally.samples:
            op, seconds = self._tally.samples.popleft()
            self._seconds.record(seconds, {"op": _OP_NAMES.get(op, "unknown")})
        while self._disk_timings:
            direction, seconds = self._disk_timings.popleft()
            self._disk_seconds.record(seconds, {"direction": direction})
        return generate_latest(self._registry)

    def close(self) -> None:
        self._provider.shutdown()

    def _observer(self, parts: _Parts) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(self._figures[key], labels) for key, labels in parts]

        return observe

    def _errors(self, _: CallbackOptions) -> Iterable[Observation]:
        errors: Mapping[str, int] = self._figures["errors"]
        return [Observation(errors.get(kind, 0), {"kind": kind}) for kind in ERROR_KINDS]

    def _requests(self, _: CallbackOptions) -> Iterable[Observation]:
        counts = self._tally.requests
        return [Observation(counts[op], {"op": name}) for op, name in _OP_NAMES.items()]
