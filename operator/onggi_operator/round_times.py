"""How long rounds take, and how much of a core they are: what answering agents has to wait for."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

SLICE_S: Final = 0.01
"""How long planning goes on before agents are answered again. A slice for each node would wait as
often for all reports that came meanwhile, and when there are more than can be answered, agents that
connect anew after a pause of ours, the plan would come last."""

SLICE_S_MAX: Final = 0.1
"""As long as agents took in between is the next slice, so that a processor of which too little is
left is shared evenly; but no answer waits longer than this."""

BUCKETS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class RoundTimes:
    """`planning` goes around what a round plans, which awaits nothing but `breathe`; `end` is the
    round's end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rounds = Histogram(
            "onggi_operator_round_seconds",
            "Time that planning takes in a round, agents that are answered meanwhile included.",
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._cpu = Counter(
            "onggi_operator_planning_cpu_seconds",
            "Processor time that planning took.",
            registry=registry,
        )
        self._planned_s = 0.0
        self._cpu_s = 0.0
        """Of this thread, when what is planned now began, or went on."""
        self._breathed_s = 0.0
        self._slice_s = SLICE_S

    @contextmanager
    def planning(self) -> Iterator[None]:
        begin_s, self._cpu_s = time.monotonic(), time.thread_time()
        yield
        self._cpu.inc(time.thread_time() - self._cpu_s)
        self._planned_s += time.monotonic() - begin_s

    async def breathe(self) -> None:
        """Let agents be answered, if it is time."""
        begin_s = time.monotonic()
        if begin_s - self._breathed_s >= self._slice_s:
            self._cpu.inc(time.thread_time() - self._cpu_s)
            await asyncio.sleep(0)
            self._cpu_s = time.thread_time()
            self._breathed_s = time.monotonic()
            self._slice_s = min(SLICE_S_MAX, max(SLICE_S, self._breathed_s - begin_s))

    def end(self) -> None:
        self._rounds.observe(self._planned_s)
        self._planned_s = 0.0
