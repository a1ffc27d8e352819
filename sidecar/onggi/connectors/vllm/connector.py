"""vLLM's interface, filled in: this class only translates and guards.

Every hook is wrapped (guard.py); until both sides have found each other, and for set-ups that are
not cached, all of them answer "nothing".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_events import KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from onggi.connectors.vllm import start
from onggi.connectors.vllm.carried import OnggiReport, OnggiStep, OnggiTold
from onggi.connectors.vllm.guard import Faults, hook, log
from onggi.connectors.vllm.hybrid.pins import Pins
from onggi.connectors.vllm.hybrid.scheduler import HybridScheduler
from onggi.connectors.vllm.metadata import Report, StepPlan, Told
from onggi.connectors.vllm.options import Options, read_options
from onggi.connectors.vllm.publish import to_vllm
from onggi.connectors.vllm.scheduler import MISS, Scheduler
from onggi.connectors.vllm.siblings import has_the_handshake
from onggi.connectors.vllm.stats import OnggiPromMetrics, OnggiStats
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.worker import Worker


def _nothing() -> None:
    return None


class OnggiConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """One class, two objects: vLLM makes one in the scheduler and one in each worker. Models whose
    blocks lie in several groups have a scheduler side of their own (hybrid/)."""

    supports_sleep_mode = False
    """Asked by vLLM 0.33 and later: a sleep that gives the KV tensors back would leave our
    addresses pointing nowhere."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        side = "scheduler" if role == KVConnectorRole.SCHEDULER else "worker"
        self.faults = Faults(side)
        self.tally = Tally()
        self._faults_counted = 0
        self._scheduler: Scheduler | HybridScheduler | None = None
        self._worker: Worker | None = None
        self._told: Told | None = None
        self._ranks: dict[int, Told] | None = {}
        """Those that the scheduler side has heard of in reports; None: a handshake said it all."""
        self._pins = Pins()
        self.options = self._read_options()
        policy = self._kv_transfer_config.kv_load_failure_policy
        if policy != "recompute" and role == KVConnectorRole.SCHEDULER:
            log.warning(
                "onggi: kv_load_failure_policy is %s: a block that cannot be loaded fails its "
                "request; use recompute",
                policy,
            )

    @hook(lambda: Options(socket=""))
    def _read_options(self) -> Options:
        return read_options(self._kv_transfer_config.kv_connector_extra_config)

    @property
    def requires_kv_delivery(self) -> bool:
        """A cache: a save that is lost is a miss some day, so preempted requests keep what they
        have in flight."""
        return False

    # ---- worker: set-up

    @hook(_nothing)
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._worker, self._told = start.worker(
            self._vllm_config,
            self._kv_cache_config,
            kv_caches,
            self.options,
            self.faults,
            self.tally,
        )

    @hook(_nothing)
    def get_handshake_metadata(self) -> OnggiTold | None:
        if self._told is None or not has_the_handshake(self, self._vllm_config):
            return None
        return OnggiTold(self._told)

    # ---- worker: each step

    @hook(_nothing)
    def handle_preemptions(self, kv_connector_metadata: OnggiStep) -> None:
        if self._worker is not None:
            self._worker.fence(kv_connector_metadata.plan)

    @hook(_nothing)
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        if self._worker is not None and self._connector_metadata is not None:
            self._worker.load(self._connector_metadata.plan)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Before each layer's attention, in every step: the worker's own guard suffices."""
        if self._worker is not None:
            self._worker.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kw: Any) -> None:
        """Nothing: wait_for_save takes all layers at once."""

    @hook(_nothing)
    def wait_for_save(self) -> None:
        if self._worker is not None and self._connector_metadata is not None:
            self._worker.after_forward(self._connector_metadata.plan)

    @hook(_nothing)
    def _computed(self) -> None:
        if self._worker is not None and self._connector_metadata is not None:
            self._worker.computed(self._connector_metadata.plan)

    @hook(KVConnectorTransferResults)
    def get_transfer_results(
        self,
        finished_req_ids: set[str],  # noqa: ARG002
    ) -> KVConnectorTransferResults:
        """After each forward pass, before wait_for_save where drafts follow and after it else."""
        self._computed()
        if self._worker is None:
            return KVConnectorTransferResults()
        sent, received = self._worker.finished()
        return KVConnectorTransferResults(sent, received, self._worker.take_failed())

    @hook(set)
    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_errors() if self._worker is not None else set()

    @hook(_nothing)
    def build_connector_worker_meta(self) -> OnggiReport | None:
        report = self._worker.take_report() if self._worker is not None else None
        return OnggiReport(report) if report else None

    # ---- scheduler: set-up

    @hook(_nothing)
    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], OnggiTold]
    ) -> None:
        ours = [one for _, one in sorted(metadata.items()) if isinstance(one, OnggiTold)]
        if ours:  # else another connector's, which vLLM hands to all of several
            self._ranks = None
            self._begin([one.told for one in ours])

    def _heard(self, told: dict[int, Told]) -> None:
        """What ranks say of themselves in their first reports."""
        if self._ranks is None or not told:
            return
        self._ranks |= told
        self._begin([one for _, one in sorted(self._ranks.items())])

    def _begin(self, told: list[Told]) -> None:
        self._scheduler = start.scheduler(
            self._vllm_config,
            self._kv_cache_config,
            told,
            self.options,
            self.faults,
            self.tally,
            self._pins,
        )

    @hook(_nothing)
    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self._pins.bind(gpu_block_pool)

    # ---- scheduler: each request

    @hook(_nothing)
    def on_new_request(self, request: Any) -> None:
        if self._scheduler is not None and not self.faults.too_many:
            self._scheduler.arrived(request)

    @hook(lambda: MISS)
    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        if self._scheduler is None or self.faults.too_many:
            return MISS
        return self._scheduler.matched(request, num_computed_tokens)

    @hook(_nothing)
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self._scheduler is None:
            return
        table = blocks.get_block_ids() if num_external_tokens else ()
        try:
            self._scheduler.admitted(request, table, num_external_tokens)
        except Exception:
            if num_external_tokens:
                self._scheduler.broken(request, table)
            raise

    @hook(dict)
    def get_external_cache_hit_sources(
        self, request: Any, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        if self._scheduler is None or num_external_tokens == 0:
            return {}
        host, disk = self._scheduler.sources(request, num_external_tokens)
        by_source = {CacheHitSource.HOST: host, CacheHitSource.DISK: disk}
        return {source: tokens for source, tokens in by_source.items() if tokens}

    @hook(lambda: (False, None))
    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:  # noqa: ARG002
        return self._scheduler is not None and self._scheduler.finished(request), None

    @hook(lambda: (False, None))
    def request_finished_all_groups(
        self,
        request: Any,
        block_ids: tuple[list[int], ...],  # noqa: ARG002
    ) -> tuple[bool, None]:
        return self._scheduler is not None and self._scheduler.finished(request), None

    # ---- scheduler: each step

    @hook(lambda: OnggiStep(StepPlan()))
    def build_connector_meta(self, scheduler_output: Any) -> OnggiStep:
        if self._scheduler is None:
            return OnggiStep(StepPlan())
        return OnggiStep(self._scheduler.plan(scheduler_output))

    @hook(_nothing)
    def update_connector_output(self, connector_output: Any) -> None:
        meta = connector_output.kv_connector_worker_meta
        report = meta.report if isinstance(meta, OnggiReport) else Report()
        if self._scheduler is None:
            self._heard(report.told)
            return
        self._scheduler.reported(report, connector_output.finished_recving or ())

    @hook(lambda: False)
    def has_pending_block_frees(self) -> bool:
        return self._pins.any

    @hook(lambda: False)
    def has_pending_push_work(self) -> bool:
        """Saves that still hold blocks, and pins that nobody wants: an engine without requests goes
        on until they have ended, so that its prefix cache can be reset then, and the agent have its
        pages back."""
        return self._pins.any or (self._scheduler is not None and self._scheduler.owed)

    @hook(tuple)
    def take_events(self) -> Iterable[KVCacheEvent]:
        if self._scheduler is None:
            return ()
        return to_vllm(self._scheduler.events.take(), self._kv_cache_config.kv_cache_groups)

    @hook(lambda: False)
    def reset_cache(self) -> bool:
        if self._scheduler is not None:
            self._scheduler.reset()
        return True

    # ---- both

    @hook(_nothing)
    def get_kv_connector_stats(self) -> OnggiStats | None:
        if self.faults.total > self._faults_counted:
            self.tally.add("faults", self.faults.total - self._faults_counted)
            self._faults_counted = self.faults.total
        counts = self.tally.take()
        return OnggiStats(data=counts) if counts else None

    @hook(_nothing)
    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.close()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> OnggiStats | None:
        return OnggiStats(data=data if data is not None else {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> OnggiPromMetrics:
        return OnggiPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
