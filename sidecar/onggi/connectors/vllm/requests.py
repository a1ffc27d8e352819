"""What the scheduler sides for blocks of one kind and of several do alike: which requests they
remember, what workers report of loads, and what a reset by hand means."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from onggi.clock import Clock
from onggi.connectors.vllm.adapters import Adapters
from onggi.connectors.vllm.awaited import AwaitedLoads
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.metadata import Report, StepPlan
from onggi.connectors.vllm.offers import Judge
from onggi.connectors.vllm.pace import Pace
from onggi.connectors.vllm.tally import Tally
from onggi_core.identity import Extra


class Remembered(Protocol):
    """sources: tokens promised from host memory and from disk. frozen: the engine's caches were
    reset under the request; its blocks are not for keeping."""

    sources: tuple[int, int]
    frozen: bool


R = TypeVar("R", bound=Remembered)
L = TypeVar("L", bound=AwaitedLoads[Any, Any])


class Requests(ABC, Generic[R, L]):
    """Called on the engine's thread only."""

    _loads: L

    def __init__(
        self,
        judge: Judge,
        *,
        faults: Faults,
        tally: Tally,
        clock: Clock,
        events: Events,
    ) -> None:
        self._judge = judge
        self._faults = faults
        self._tally = tally
        self._now_s = clock
        self.events = events
        self._adapters = Adapters()
        self._pace = Pace()
        self._tracked: dict[str, R] = {}
        self._life = ""

    # ---- what we know of a request

    def _track(self, request: Any) -> R | None:
        """Its state; None: not cached (a streaming session, an adapter of unknown version)."""
        tracked = self._tracked.get(request.request_id)
        if tracked is not None:
            return tracked
        if getattr(request, "resumable", False):
            return None
        adapter = self._adapters.extras(request.lora_request)
        if adapter is None:
            return None
        tracked = self._tracked[request.request_id] = self._remember(request, adapter)
        return tracked

    @abstractmethod
    def _remember(self, request: Any, adapter: Sequence[Extra]) -> R:
        """A new request, whose keys carry `adapter` and this life."""

    @abstractmethod
    def _withdraw(self, tracked: R) -> None:
        """Give its promise back, if there is one."""

    @property
    def owed(self) -> bool:
        """A pin that nobody wants any more may still come, and has to be given back."""
        return self._loads.unwanted.any

    def sources(self, request: Any, external_tokens: int) -> tuple[int, int]:
        """Of the promised tokens, those from host memory and those from disk."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None or sum(tracked.sources) != external_tokens:
            return external_tokens, 0
        return tracked.sources

    # ---- the step

    def _pace_of(self, plan: StepPlan, output: Any) -> None:
        """Measure the step, if it only computes. output: vLLM's SchedulerOutput."""
        if not plan.loads:
            tokens = sum(output.num_scheduled_tokens.values())
            plan.step = self._pace.planned(tokens, self._now_s())

    def reported(self, report: Report, received: Iterable[str]) -> None:
        """What the workers did. received: requests whose asynchronous load is over."""
        if report.step and self._judge.worth is not None:
            step = self._pace.reported(report.step, self._now_s())
            if step is not None:
                self._judge.worth.computed(*step)
        for number, (blocks, ranks_said) in report.loaded.items():
            copied_s = report.seconds.get(number, 0.0)
            self._loads.reported(number, blocks, ranks_said, copied_s, self._tracked)
        for request_id in received:
            self._loads.received(request_id, self._tracked)
        self._saved(report)
        self.events.reported(report)

    @abstractmethod
    def _saved(self, report: Report) -> None:
        """What the workers did of saves."""

    # ---- the end

    def reset(self) -> None:
        """The engine's caches were emptied by hand, as after new weights: nothing stored before is
        found again by this engine, and what runs now is not kept."""
        self._life = uuid.uuid4().hex
        self.events.reset()
        for tracked in self._tracked.values():
            self._withdraw(tracked)
            tracked.frozen = True

    def close(self) -> None:
        for tracked in self._tracked.values():
            self._withdraw(tracked)
