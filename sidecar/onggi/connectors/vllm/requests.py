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
    reset under the request; its blocks are not for keeping. reached: tokens that it has when it is
    admitted, of the engine's own and of ours. doubted: it is saved again once it has more tokens
    than so many."""

    request: Any
    sources: tuple[int, int]
    frozen: bool
    reached: int
    doubted: int


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
        self._admitted: set[str] = set()
        """Those asked about, until they are first scheduled."""
        self._doubted: set[str] = set()
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

    def _forget(self, request_id: str) -> R | None:
        """It has ended."""
        self._admitted.discard(request_id)
        self._doubted.discard(request_id)
        return self._tracked.pop(request_id, None)

    def _asked(self, tracked: R, computed_tokens: int) -> None:
        """The engine has so many tokens of it, and asks for more."""
        tracked.reached = computed_tokens
        self._admitted.add(tracked.request.request_id)

    def _doubt(self, output: Any) -> None:
        """Before a step is saved: of a request that begins with more than the engine and we gave
        it, the rest is another connector's. If its load fails, which only the step's result says,
        what the step computes is wrong, here and in those that begin with blocks of this one. So
        nothing of either is saved until a token shows that the step was good."""
        self._doubted = {name for name in self._doubted if self._is_doubted(name)}
        for request_id in self._admitted & output.num_scheduled_tokens.keys():
            self._admitted.discard(request_id)
            one = self._tracked.get(request_id)
            if one is None:
                continue
            by_others = one.request.num_computed_tokens > one.reached
            waits_for = by_others and getattr(output, "has_sync_kv_loads", by_others)
            if waits_for or (self._doubted and one.request.num_computed_tokens):
                one.doubted = one.request.num_tokens
                self._doubted.add(request_id)

    def _is_doubted(self, request_id: str) -> bool:
        one = self._tracked.get(request_id)
        return one is not None and one.request.num_tokens <= one.doubted

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
