"""The worker side: copies this rank's pages as the step's plan says, and reports.

It decides nothing. Synchronous loads are copied on the engine's thread, since the forward pass
needs them; everything else is the mover's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onggi.client import Client
from onggi.clock import Clock, monotonic
from onggi.connectors.vllm.copier import Copier, LayerCopier, Load
from onggi.connectors.vllm.guard import Faults, log
from onggi.connectors.vllm.metadata import LoadJob, Report, StepPlan, Told
from onggi.connectors.vllm.mover import Mover
from onggi.connectors.vllm.tally import Tally

STOP_WAIT_S: Final = 2.0
"""For the mover at shutdown: it ends after its batch, some milliseconds."""


@dataclass
class _Coming:
    """A load that this step's forward pass needs. blocks: those that have a page."""

    job: LoadJob
    load: Load
    blocks: int
    expires_s: float


class Worker:
    """One rank. Called on the engine's thread only."""

    def __init__(
        self,
        client: Client,
        copiers: Sequence[Copier],
        rank: int,
        faults: Faults,
        tally: Tally,
        clock: Clock = monotonic,
        *,
        layers: Sequence[str] = (),
        cores: frozenset[int] = frozenset(),
        sync: LayerCopier | None = None,
        saves_unasked: bool = False,
    ) -> None:
        """copiers: one for each kind of pages, as the client has spaces. sync: for loads that a
        step's forward pass needs; None: there are none, and failed loads are told by their request,
        since numbers of blocks do not name them. rank: this worker's row in a load job's pages.
        layers: their names in the order of the
        page, if the forward pass says which it needs next; it then runs while they come. cores:
        where the mover may run, if it is to leave the engine's. saves_unasked: after_forward may
        not be called, so a step is over when its forward pass is."""
        self._client = client
        self._mark = copiers[0].mark
        self._sync = sync
        self._rank = rank
        self._faults = faults
        self._tally = tally
        self._now_s = clock
        self._mover = Mover(client, copiers, rank, faults, tally, clock, cores)
        self._layers = {name: number for number, name in enumerate(layers)}
        self._coming: list[_Coming] = []
        self._waited: set[str] = set()
        """Layers that the forward pass has asked for since the loads began."""
        self._held_up_s = 0.0
        self._saves_unasked = saves_unasked
        self._computed: StepPlan | None = None
        self._over: StepPlan | None = None
        """Plans whose forward pass is over, and of whose step all is: the last ones."""
        self._step_failed = False
        self._errors: set[int] = set()
        self._received: set[str] = set()
        self._failed: set[str] = set()
        self._open: dict[str, set[int]] = {}
        self._owner: dict[int, str] = {}
        self._delayed: set[str] = set()
        self._report = Report()

    def start(self, told: Told) -> None:
        """Prepare for the first load while the engine still starts. told: what to say of this rank
        with the first step, which is news to a scheduler that no handshake reached."""
        self._report.told[self._rank] = told
        self._mover.start()

    def fence(self, plan: StepPlan) -> None:
        """Before this step overwrites blocks of preempted requests."""
        fenced = set(self._owner) if plan.fence_all else plan.fenced
        if fenced:
            self._mover.fence(fenced)

    def load(self, plan: StepPlan) -> None:
        """Begin what this step's forward pass needs. What fails is reported and computed."""
        began_s = self._now_s() if plan.loads else 0.0
        for job in plan.loads:
            if not job.asynchronous:
                self._begin(job)
        if not self._coming:
            return
        if self._layers:
            self._mover.help([coming.load for coming in self._coming])
        self._held_up_s = self._now_s() - began_s
        if not self._layers:
            self._end_loads()

    def wait_for_layer(self, name: str) -> None:
        """The forward pass is about to read this layer."""
        if not self._coming:
            return
        self._waited.add(name)
        began_s, layer = self._now_s(), self._layers.get(name)
        for coming in self._coming:
            try:
                if layer is None:
                    coming.load.end()
                else:
                    coming.load.wait(layer)
            except Exception as error:  # noqa: BLE001 - end() will say that it failed
                self._faults.note("load", error)
                coming.blocks = 0
        self._held_up_s += self._now_s() - began_s

    def computed(self, plan: StepPlan) -> None:
        """The forward pass is over: say what became of its loads, and begin those that requests
        wait for. Called by each hook that comes after it; once is enough.

        Where drafts follow, vLLM collects what is to be said of a step before it has them, and
        only then says that all is written: a failed load that is told with the next step would
        leave a token that was computed on it.
        """
        if plan is self._computed:
            return
        self._computed = plan
        self._end_loads()
        self._report.step = plan.step
        self._delayed |= plan.delayed
        for job in plan.loads:
            if job.asynchronous:
                self._hand_over(job)
        if self._saves_unasked:
            self.after_forward(plan)

    def after_forward(self, plan: StepPlan) -> None:
        """All of this step is written: hand over its saves.

        After a failed load the step has computed on garbage, in the request itself and in every
        other that shares its blocks. Which those are is not worth finding out: none is saved, and
        the scheduler offers the blocks again once they are computed.
        """
        self.computed(plan)
        if plan is self._over:
            return
        self._over = plan
        failed, self._step_failed = self._step_failed, False
        if failed:
            self._report.saves_dropped |= {job.number for job in plan.saves}
            return
        if not plan.saves:
            return
        after = self._mark()
        for save in plan.saves:
            self._owner[save.number] = save.request_id
            self._open.setdefault(save.request_id, set()).add(save.number)
            self._mover.submit_save(save, after)

    def finished(self) -> tuple[set[str], set[str]]:
        """Requests whose delayed saves are over, and those whose load has ended; each once."""
        moved = self._mover.take()
        for job, blocks, took_s in moved.loads:
            self._loaded(job, blocks, took_s)
            self._received.add(job.request_id)
        for number, kept in moved.saves.items():
            self._report.saves_over[number] = 1
            self._report.kept[number] = kept
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

    def take_failed(self) -> set[str]:
        """Requests whose load has ended and left nothing that is right."""
        failed, self._failed = self._failed, set()
        return failed

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
            self._mover.submit_load(job, self._mark())
        except Exception as error:  # noqa: BLE001 - an unreported load would hold its blocks for ever
            self._faults.note("load", error)
            self._loaded(job, 0)
            self._received.add(job.request_id)

    def _begin(self, job: LoadJob) -> None:
        try:
            coming = self._coming_load(job)
        except Exception as error:  # noqa: BLE001 - the blocks must be reported, whatever it was
            self._faults.note("load", error)
            coming = None
        if coming is None:
            self._loaded(job, 0)
        else:
            self._coming.append(coming)

    def _coming_load(self, job: LoadJob) -> _Coming | None:
        if not job.wanted or not job.rows or self._sync is None:
            return None
        pages = job.rows[self._rank]
        arena = self._client.arena(pages)
        if arena is None or self._now_s() >= pages.expires_s:
            return None
        count = min(len(pages.offsets), len(job.block_ids))
        pairs = zip(job.block_ids[:count], pages.offsets[:count], strict=True)
        load = self._sync.load(arena, pairs, self._mark())
        return _Coming(job, load, count, pages.expires_s)

    def _end_loads(self) -> None:
        """Wait for what has not come yet, and say what became of each load: all of it or none,
        since a page that was taken back may hold another block by now."""
        if not self._coming:
            return
        began_s = self._now_s()
        asked_for = self._waited >= self._layers.keys()
        right = [self._ended(coming) and asked_for for coming in self._coming]
        if not asked_for:
            self._go_by_the_whole()
        self._waited = set()
        self._held_up_s += self._now_s() - began_s
        self._tally.add("load_seconds", self._held_up_s)
        blocks = sum(coming.blocks for coming in self._coming) or 1
        for coming, whole in zip(self._coming, right, strict=True):
            took_s = self._held_up_s * coming.blocks / blocks
            self._loaded(coming.job, coming.blocks if whole else 0, took_s)
        self._coming, self._held_up_s = [], 0.0

    def _go_by_the_whole(self) -> None:
        """The forward pass did not ask for all layers, as a captured graph does not: it may have
        read them before they came."""
        log.warning(
            "onggi: the engine does not ask for its layers one by one (%d of %d); loads come whole "
            "from now on",
            len(self._waited & self._layers.keys()),
            len(self._layers),
        )
        self._layers = {}

    def _ended(self, coming: _Coming) -> bool:
        try:
            return coming.load.end() and self._now_s() < coming.expires_s
        except Exception as error:  # noqa: BLE001 - the blocks must be reported, whatever it was
            self._faults.note("load", error)
            return False

    def _loaded(self, job: LoadJob, blocks: int, took_s: float = 0.0) -> None:
        missing = job.block_ids[blocks:]
        self._report.seconds[job.number] = took_s
        self._report.loaded[job.number] = blocks, 1
        if self._sync is not None:
            self._errors.update(missing)
        elif missing:
            self._failed.add(job.request_id)
        self._tally.add("failed_load_blocks", len(missing))
        self._tally.add("loaded_bytes", self._bytes(job, blocks))
        if missing and not job.asynchronous:
            self._step_failed = True

    def _bytes(self, job: LoadJob, blocks: int) -> int:
        if not blocks:
            return 0
        nbytes = blocks * self._client.spaces[job.kind].page_bytes
        return nbytes + sum(self._bytes(part, len(part.block_ids)) for part in job.also)
