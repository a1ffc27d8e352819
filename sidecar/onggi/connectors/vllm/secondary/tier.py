"""vLLM's interface of a secondary tier, filled in: this class only translates and guards.

All calls come from the scheduler's thread, and none of them waits for the agent but those that say
so. Every hook is wrapped (guard.py); a job that cannot be begun is reported as failed, since one
that is never reported would hold its chunks for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingMetricMetadata,
    RequestOffloadingContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from onggi.connectors.vllm.guard import Faults, hook
from onggi.connectors.vllm.secondary.moves import Chain, Ended, Job
from onggi.connectors.vllm.secondary.names import group_of
from onggi.connectors.vllm.secondary.start import Live, begin
from onggi_core.identity import ROOT
from onggi_core.wire.locate import At

OWNER: Final = "onggi"
MEDIA: Final = {At.HOST: Medium.CPU, At.DISK: Medium.STORAGE}
FAULTS: Final = "vllm:onggi_tier_faults"


@dataclass
class _Ends:
    """Of one request: for each group the furthest chunk that is known to be kept, by the position
    of its last token. The next one stored follows it."""

    by_group: dict[int, tuple[int, bytes]] = field(default_factory=dict)


def _nothing(*_: Any) -> None:
    return None


class OnggiTier(SecondaryTierManager):  # type: ignore[misc]
    """One object an engine, in its scheduler."""

    medium: ClassVar[Medium] = Medium.CPU

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        locality: str | None = None,  # noqa: ARG002 - of vLLM's own; an agent is always local
        **settings: Any,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self.faults = Faults("tier")
        self._faults_counted = 0
        self._refused: list[JobResult] = []
        self._live = self._begin(settings)

    @hook(_nothing)
    def _begin(self, settings: dict[str, Any]) -> Live | None:
        return begin(
            self._offloading_spec, self._primary_kv_view, self.tier_type, settings, self.faults
        )

    @property
    def _taking_part(self) -> Live | None:
        return None if self.faults.too_many else self._live

    # ---- each request

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:  # noqa: ARG002
        return RequestOffloadingContext()

    @hook(lambda: LookupResult.MISS)
    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        live = self._taking_part
        if live is None:
            return LookupResult.MISS
        found = live.lookups.verdict(key, req_context)
        if found is None:
            return LookupResult.RETRY
        if not found:
            live.told.missing((key,))
            return LookupResult.MISS
        self._reached(req_context, key, live.names.keys([key])[0])
        return LookupResult.HIT

    @hook(_nothing)
    def on_request_finished(self, req_context: Any) -> None:
        if self._live is not None:
            self._live.lookups.cleanup(req_context.req_id)

    def _reached(self, req_context: Any, name: bytes, key: bytes) -> None:
        """A chunk that is kept."""
        at = req_context.get_offload_key_position(name)
        if at is None:
            return
        ends = req_context.get_state(_Ends)
        if ends is None:
            ends = _Ends()
            req_context.set_state(ends)
        group = group_of(name)
        if at > ends.by_group.get(group, (0, ROOT))[0]:
            ends.by_group[group] = (at, key)

    # ---- jobs

    def submit_store(self, job_metadata: TransferJob) -> None:
        if not self._submitted(job_metadata, is_load=False):
            self._refused.append(JobResult(job_metadata.job_id, success=False))

    def submit_load(self, job_metadata: TransferJob) -> None:
        if not self._submitted(job_metadata, is_load=True):
            self._refused.append(JobResult(job_metadata.job_id, success=False, transfer_time=0.0))

    @hook(lambda: False)
    def _submitted(self, job: TransferJob, *, is_load: bool) -> bool:
        live = self._taking_part
        if live is None:
            return False
        chains = self._chains(live, job, is_load=is_load)
        (live.moves.load if is_load else live.moves.store)(Job(job.job_id, chains))
        return True

    def _chains(self, live: Live, job: TransferJob, *, is_load: bool) -> tuple[Chain, ...]:
        """A job's chunks by their groups, each in the order of its tokens: vLLM hands them over in
        none."""
        context = job.req_context
        by_group: dict[int, list[tuple[int, bytes, int]]] = {}
        for name, chunk in zip(job.keys, job.chunk_ids, strict=True):
            at = context.get_offload_key_position(name) or 0
            by_group.setdefault(group_of(name), []).append((at, name, int(chunk)))
        chains = []
        for group, members in by_group.items():
            members.sort(key=lambda member: member[0])
            names = tuple(name for _, name, _ in members)
            keys = live.names.keys(names)
            rows = [live.row(chunk) for _, _, chunk in members]
            parent = ROOT if is_load else self._parent(context, group, members[0][0])
            chains.append(Chain(names, keys, rows, parent))
            if not is_load:
                self._reached(context, names[-1], keys[-1])
        return tuple(chains)

    def _parent(self, context: Any, group: int, at: int) -> bytes:
        ends = context.get_state(_Ends)
        before, key = ends.by_group.get(group, (0, ROOT)) if ends is not None else (0, ROOT)
        return key if before < at else ROOT

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results, self._refused = self._refused, []
        if self._live is not None:
            results += [self._result(self._live, ended) for ended in self._live.moves.take()]
        return results

    def _result(self, live: Live, ended: Ended) -> JobResult:
        names, done = ended.job.names, ended.done
        if ended.is_load:
            lost = set(names).difference(done)
            live.lookups.failed([name for name in names if name in lost])
            live.told.missing(lost)
        else:
            live.lookups.stored(done)
            live.told.stored(done, live.names.keys(done))
        return JobResult(
            ended.job.number,
            success=len(done) == len(names),
            successful_keys=done if ended.is_load and done else None,
            transfer_time=ended.took_s,
            transfer_bytes=len(done) * live.row_bytes,
        )

    def drain_jobs(self) -> None:
        """Waits until no job is left. vLLM asks for it when its caches are reset by hand, after
        which nothing that was kept before may be found: the weights may be others."""
        if self._live is None:
            return
        self._live.moves.drain()
        self._live.names.renew()
        self._live.told.reset()

    # ---- each step

    @hook(_nothing)
    def on_schedule_end(self, context: ScheduleEndContext) -> None:  # noqa: ARG002
        if self._live is not None:
            self._live.lookups.flush()

    @hook(tuple)
    def take_events(self) -> Iterable[OffloadingEvent]:
        if self._live is None:
            return ()
        self._live.sweep.step()
        return [
            OffloadingEvent(
                keys=list(change.names),
                medium=MEDIA[change.at],
                removed=change.removed,
                locality=self.locality,
                ownership=OWNER,
                removal_expected=True,
            )
            for change in self._live.told.take()
        ]

    # ---- figures and the end

    @classmethod
    def build_metric_definitions(
        cls,
        extra_config: dict[str, Any],  # noqa: ARG003 - the same whatever is set
    ) -> dict[str, OffloadingMetricMetadata]:
        meaning = "Errors in the Onggi tier's own hooks, each counted as a miss."
        return {FAULTS: OffloadingCounterMetadata(documentation=meaning)}

    @hook(_nothing)
    def get_stats(self) -> OffloadingConnectorStats | None:
        new, self._faults_counted = self.faults.total - self._faults_counted, self.faults.total
        if not new:
            return None
        stats = OffloadingConnectorStats()
        stats.increase_counter(FAULTS, new)
        return stats

    def shutdown(self) -> None:
        """Waits for the copies that run. Raises RuntimeError if one does not end: vLLM then leaves
        its memory mapped."""
        live, self._live = self._live, None
        if live is None:
            return
        stopped = live.moves.stop()
        live.lookups.shutdown()
        live.client.close()
        if not stopped:
            raise RuntimeError("a copy of the onggi tier's still runs")
        live.moves.take()
        live.rows.release()
