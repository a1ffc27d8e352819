"""The worker side: copies this rank's pages as the step's plan says, and reports.

It decides nothing. Synchronous loads are copied on the engine's thread, since the forward pass
needs them; everything else is the mover's.
"""

from __future__ import annotations

from onggi.client import Client
from onggi.clock import Clock, monotonic
from onggi.connectors.vllm.copier import Copier
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.metadata import LoadJob, Report, StepPlan
from onggi.connectors.vllm.mover import Mover, copy_load
from onggi.connectors.vllm.tally import Tally

STOP_WAIT_S = 2.0
"""For the mover at shutdown: it ends after its batch, some milliseconds."""


class Worker:
    """One rank. Called on the engine's thread only."""

    def __init__(
        self,
        client: Client,
        copier: Copier,
        rank: int,
        faults: Faults,
        tally: Tally,
        clock: Clock = monotonic,
    ) -> None:
        """rank: this worker's row in a load job's pages."""
        page_bytes = client.spaces[0].page_bytes
        self._page_bytes = page_bytes
        self._client = client
        self._copier = copier
        self._rank = rank
        self._faults = faults
        self._tally = tally
        self._now_s = clock
        self._mover = Mover(client, copier, page_bytes, rank, faults, tally, clock)
        self._step_failed = False
        self._errors: set[int] = set()
        self._received: set[str] = set()
        self._open: dict[str, set[int]] = {}
        self._owner: dict[int, str] = {}
        self._delayed: set[str] = set()
        self._report = Report()

    def start(self) -> None:
        """Prepare for the first load while the engine still starts."""
        self._mover.start()

    def fence(self, plan: StepPlan) -> None:
        """Before this step overwrites blocks of preempted requests."""
        fenced = set(self._owner) if plan.fence_all else plan.fenced
        if fenced:
            self._mover.fence(fenced)

    def load(self, plan: StepPlan) -> None:
        """Copy what this step's forward pass needs. What fails is reported and computed."""
        for job in plan.loads:
            if not job.asynchronous:
                began_s = self._now_s()
                self._loaded(job, self._copy(job))
                self._tally.add("load_seconds", self._now_s() - began_s)

    def after_forward(self, plan: StepPlan) -> None:
        """Hand over this step's saves and its asynchronous loads.

        After a failed load the step has computed on garbage, in the request itself and in every
        other that shares its blocks. Which those are is not worth finding out: none is saved, and
        the scheduler offers the blocks again once they are computed.
        """
        self._delayed |= plan.delayed
        for job in plan.loads:
            if job.asynchronous:
                self._hand_over(job)
        failed, self._step_failed = self._step_failed, False
        if failed:
            self._report.saves_dropped |= {job.number for job in plan.saves}
            return
        if not plan.saves:
            return
        after = self._copier.mark()
        for save in plan.saves:
            self._owner[save.number] = save.request_id
            self._open.setdefault(save.request_id, set()).add(save.number)
            self._mover.submit_save(save, after)

    def finished(self) -> tuple[set[str], set[str]]:
        """Requests whose delayed saves are over, and those whose load has ended; each once."""
        moved = self._mover.take()
        for job, blocks in moved.loads:
            self._loaded(job, blocks)
            self._received.add(job.request_id)
        for number in moved.saves:
            self._report.saves_over[number] = 1
            request_id = self._owner.pop(number, "")
            numbers = self._open.get(request_id)
            if numbers is not None:
                numbers.discard(number)
                if not numbers:
                    del self._open[request_id]
        sent = {request_id for request_id in self._delayed if request_id not in self._open}
        self._delayed -= sent
        received, self._received = self._received, set()
        return sent, received

    def take_errors(self) -> set[int]:
        """Blocks that a load left without their bytes."""
        errors, self._errors = self._errors, set()
        return errors

    def take_report(self) -> Report:
        report, self._report = self._report, Report()
        return report

    def close(self) -> None:
        self._mover.stop(STOP_WAIT_S)
        self._client.close()

    def _hand_over(self, job: LoadJob) -> None:
        if not job.wanted:
            self._received.add(job.request_id)
            return
        try:
            self._mover.submit_load(job, self._copier.mark())
        except Exception as error:  # noqa: BLE001 - an unreported load would hold its blocks for ever
            self._faults.note("load", error)
            self._loaded(job, 0)
            self._received.add(job.request_id)

    def _copy(self, job: LoadJob) -> int:
        try:
            after = self._copier.mark()
            return copy_load(self._client, self._copier, self._rank, job, after, self._now_s)
        except Exception as error:  # noqa: BLE001 - the blocks must be reported, whatever it was
            self._faults.note("load", error)
            return 0

    def _loaded(self, job: LoadJob, blocks: int) -> None:
        missing = job.block_ids[blocks:]
        self._report.loaded[job.number] = blocks, 1
        self._errors.update(missing)
        self._tally.add("failed_load_blocks", len(missing))
        self._tally.add("loaded_bytes", blocks * self._page_bytes)
        if missing and not job.asynchronous:
            self._step_failed = True
