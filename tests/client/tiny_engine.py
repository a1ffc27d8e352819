"""An engine in a page of code: vLLM's order of calls around a bytearray for a KV cache.

It allocates the block freed last first, preempts when there is none, and overwrites a new block
with junk at once, so that a save or a load of a block that is somebody else's by then shows.
Computing a block writes bytes that follow from all tokens up to its end; before each forward it
looks at every block the request claims to have.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from vllm_stand_ins import BLOCK, LAYERS, PAGE, Request, Sides, page_of, step_output

from onggi.connectors.vllm.metadata import Report

JUNK = b"\xee" * PAGE


@dataclass
class Live:
    """A request in the engine."""

    request: Request
    target: int
    table: list[int] = field(default_factory=list)
    waiting_for_load: bool = False
    wrong_from: int | None = None


class TinyEngine:
    def __init__(self, sides: Sides, *, running_max: int = 3, drafts: bool = False) -> None:
        """drafts: as with speculative decoding, what is to be said of a step is collected before
        all of it is written, and of a pipeline only the last rank hears of that."""
        self.sides = sides
        self.drafts = drafts
        self.memories = sides.memories
        self.free = list(range(sides.memories[0].blocks))
        self.running_max = running_max
        self.waiting: list[Live] = []
        self.loading: dict[str, Live] = {}
        self.running: list[Live] = []
        self.held: dict[str, list[int]] = {}
        self.done: list[Live] = []
        self.preempted: set[str] = set()
        self.recomputed = 0
        self._new_blocks: list[int] = []
        self._said_sent: dict[str, set[int]] = {}
        self._said_received: dict[str, set[int]] = {}
        self._answer: tuple[set[str], set[str]] = (set(), set())
        self._async_errors: set[int] = set()

    # ---- requests come and go

    def add(self, name: str, tokens: list[int], new_tokens: int) -> None:
        live = Live(Request(name, list(tokens)), len(tokens) + new_tokens)
        self.sides.scheduler.arrived(live.request)
        self.waiting.append(live)

    def abort(self, name: str) -> None:
        for queue in (self.waiting, self.running):
            for live in queue:
                if live.request.request_id == name:
                    queue.remove(live)
                    self._finish(live)
                    return
        live_loading = self.loading.get(name)
        if live_loading is not None:
            del self.loading[name]
            assert not self.sides.scheduler.finished(live_loading.request)
            self.held[name] = live_loading.table

    @property
    def idle(self) -> bool:
        requests = self.waiting or self.running or self.loading or self.held
        return not (requests or self.sides.scheduler.owed)

    # ---- a step

    def step(self) -> None:
        scheduled: dict[str, int] = {}
        sync = self._admit(scheduled)
        self._schedule_running(scheduled)
        tables = {live.request.request_id: live.table for live in self.running}
        output = step_output(scheduled, tables, self.preempted)
        self.preempted = set()
        plan = self.sides.scheduler.plan(output)
        workers = self.sides.workers
        for worker in workers:
            worker.fence(plan)
        self._junk_new_blocks()
        if sync:
            for worker in workers:
                worker.load(plan)
        for worker in workers:
            for layer in LAYERS:
                worker.wait_for_layer(layer)
        batch = [live for live in self.running if live.request.request_id in scheduled]
        for live in batch:
            self._forward(live, scheduled[live.request.request_id])
        errors: set[int] = set()
        report, sent, received = Report(), set(), set()
        for rank, worker in enumerate(workers):
            if not sync:
                worker.load(plan)
            if not self.drafts:
                worker.after_forward(plan)
            worker.computed(plan)
            sent |= self._all_said(self._said_sent, rank, worker.finished, 0)
            received |= self._all_said(self._said_received, rank, None, 1)
            errors |= worker.take_errors()
            report = report.merged(worker.take_report())
            if self.drafts and rank not in self.sides.unasked:
                worker.after_forward(plan)
        self._async_errors |= errors
        self.sides.scheduler.reported(report, received)
        for live in batch:
            self._settle(live, scheduled[live.request.request_id], errors)
        self._received(received, self._async_errors)
        for name in sent:
            self.free += self.held.pop(name)

    def _admit(self, scheduled: dict[str, int]) -> bool:
        sync = False
        while self.waiting and len(self.running) < self.running_max:
            live = self.waiting[0]
            request = live.request
            external, waits = 0, False
            if request.num_computed_tokens == 0:
                external, waits = self.sides.scheduler.matched(request, 0)
            assert external <= request.num_tokens - 1
            tokens = external if waits else request.num_tokens
            if not self._grow(live, tokens):
                break
            self.waiting.pop(0)
            self.sides.scheduler.admitted(request, [live.table], external)
            if waits:
                request.num_computed_tokens = external
                self.loading[request.request_id] = live
                continue
            if external:
                request.num_computed_tokens, sync = external, True
            self.running.append(live)
            scheduled[request.request_id] = request.num_tokens - request.num_computed_tokens
        return sync

    def _schedule_running(self, scheduled: dict[str, int]) -> None:
        for live in tuple(self.running):
            if live not in self.running or live.request.request_id in scheduled:
                continue
            while not self._grow(live, live.request.num_tokens):
                victims = [x for x in self.running if x.request.request_id not in scheduled]
                self._preempt(victims[-1])
                if victims[-1] is live:
                    break
            if live in self.running:
                todo = live.request.num_tokens - live.request.num_computed_tokens
                scheduled[live.request.request_id] = todo

    def _grow(self, live: Live, tokens: int) -> bool:
        need = -(-tokens // BLOCK) - len(live.table)
        if need > len(self.free):
            return False
        for _ in range(need):
            block = self.free.pop()
            live.table.append(block)
            self._new_blocks.append(block)
        return True

    def _preempt(self, live: Live) -> None:
        self.running.remove(live)
        self.free += live.table
        live.table = []
        live.request.num_computed_tokens = 0
        self.preempted.add(live.request.request_id)
        self.waiting.insert(0, live)

    def _junk_new_blocks(self) -> None:
        for block in self._new_blocks:
            for memory in self.memories:
                memory.write(block, JUNK)
        self._new_blocks = []

    def _all_said(self, said: dict[str, set[int]], rank: int, ask: Any, which: int) -> set[str]:
        """Requests that every rank has named once, as vLLM adds up its workers' answers."""
        if which == 0:
            self._answer = ask()
        whole = set()
        for name in self._answer[which]:
            ranks = said.setdefault(name, set())
            assert rank not in ranks, f"{name} was reported twice"
            ranks.add(rank)
            if len(ranks) == len(self.sides.workers):
                whole.add(name)
                del said[name]
        return whole

    # ---- computing

    def _forward(self, live: Live, todo: int) -> None:
        request = live.request
        computed = request.num_computed_tokens
        live.wrong_from = None
        for number in range(computed // BLOCK):
            tokens = request.all_token_ids[: (number + 1) * BLOCK]
            if any(
                memory.read(live.table[number]) != page_of(tokens, rank)
                for rank, memory in enumerate(self.memories)
            ):
                live.wrong_from = number  # ranks add up their layers, so all go wrong with one
                break
        for number in range(computed // BLOCK, (computed + todo) // BLOCK):
            for rank, memory in enumerate(self.memories):
                page = page_of(request.all_token_ids[: (number + 1) * BLOCK], rank)
                memory.write(live.table[number], page if live.wrong_from is None else page[::-1])

    def _settle(self, live: Live, todo: int, errors: set[int]) -> None:
        request = live.request
        bad = [
            number
            for number in range(-(-request.num_computed_tokens // BLOCK))
            if live.table[number] in errors
        ]
        if bad:
            request.num_computed_tokens = bad[0] * BLOCK
            self.recomputed += 1
            return
        assert live.wrong_from is None, f"{request.request_id}: wrong bytes, nobody said so"
        request.num_computed_tokens += todo
        request.all_token_ids.append(
            (request.num_tokens * 7919 + sum(request.all_token_ids[:4])) % 50_000
        )
        if request.num_tokens >= live.target:
            self.running.remove(live)
            self._finish(live)

    def _received(self, received: set[str], errors: set[int]) -> None:
        for name in received:
            live = self.loading.pop(name, None)
            if live is None:
                self.free += self.held.pop(name)  # it had ended meanwhile
                continue
            good = next(
                (n for n, block in enumerate(live.table) if block in errors), len(live.table)
            )
            errors -= set(live.table)
            live.request.num_computed_tokens = good * BLOCK
            if good == 0:
                self.free += live.table
                live.table = []
                self.recomputed += 1
            self.waiting.insert(0, live)

    def _finish(self, live: Live) -> None:
        if self.sides.scheduler.finished(live.request):
            self.held[live.request.request_id] = live.table
        else:
            self.free += live.table
        self.done.append(live)


def run_until_idle(engine: TinyEngine, each_step: Any, steps_max: int = 4000) -> None:
    """Step until nothing is left. Too many steps are a request that hangs."""
    for number in range(steps_max):
        if engine.idle:
            return
        each_step(number)
        engine.step()
        if not engine.running:
            time.sleep(0.001)  # as vLLM does while requests only wait
    raise AssertionError(f"still busy after {steps_max} steps")
