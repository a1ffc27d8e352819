"""An engine with three groups of layers in a page of code: one keeps all blocks, two a window.

As vLLM does it: a pool whose blocks count their users, one table for each group with the number 0
where a block was given up, prompts in chunks, loads that a request waits for. A block that is taken
anew is overwritten with junk at once, so that a save that still reads it shows; before each forward
it looks at every block that the next token's attention would read.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from vllm_stand_ins import BLOCK, PAGE, Request, page_of

from onggi import Client, SpaceSpec
from onggi.connectors.vllm.copier import GroupsCopier, HostCopier
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.hybrid.pins import Pins
from onggi.connectors.vllm.hybrid.scheduler import HybridScheduler
from onggi.connectors.vllm.layout import PageMap, Run
from onggi.connectors.vllm.metadata import Report
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.worker import Worker

REACH = 40
KINDS = (Kind((0,), BLOCK), Kind((1, 2), BLOCK, reach=REACH))
GROUPS = 3
KIND_OF = {group: kind for kind in KINDS for group in kind.groups}
CHUNK = 6 * BLOCK
"""Tokens of a prompt in a step: more than the window, so that blocks leave it unsaved."""
JUNK = b"\xee" * PAGE


def spaces_of(rank: int) -> list[SpaceSpec]:
    return [
        SpaceSpec(bytes([10 * rank + number + 1]) * 16, PAGE * len(kind.groups), BLOCK)
        for number, kind in enumerate(KINDS)
    ]


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0


class Pool:
    """The part of vLLM's BlockPool that is used."""

    def __init__(self, blocks: int) -> None:
        self.blocks = [Block(number) for number in range(blocks)]
        self.null_block = self.blocks[0]
        self.free = self.blocks[:0:-1]

    def touch(self, blocks: Any) -> None:
        for block in blocks:
            assert block is not self.null_block
            if block.ref_cnt == 0:
                self.free.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks: Any) -> None:
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0
            if block.ref_cnt == 0:
                self.free.append(block)


class Memory:
    """`blocks` pages in a row; a block holds one page, whichever group owns it."""

    def __init__(self, blocks: int) -> None:
        self.bytes = bytearray(blocks * PAGE)
        self._first = ctypes.c_char.from_buffer(self.bytes)
        base = ctypes.addressof(self._first)
        self.maps = [
            [
                PageMap((Run(base, PAGE, PAGE, at * PAGE),), (at + 1) * PAGE, blocks)
                for at in range(len(kind.groups))
            ]
            for kind in KINDS
        ]

    def write(self, block: int, page: bytes) -> None:
        self.bytes[block * PAGE : (block + 1) * PAGE] = page

    def read(self, block: int) -> bytes:
        return bytes(self.bytes[block * PAGE : (block + 1) * PAGE])


@dataclass
class Live:
    request: Request
    target: int
    tables: list[list[int]] = field(default_factory=lambda: [[] for _ in range(GROUPS)])


class GroupedEngine:
    def __init__(
        self,
        agent: Any,
        *,
        blocks: int,
        ranks: int = 1,
        copier: Any = HostCopier,
        hashes: int = 0,
        **scheduler: Any,
    ) -> None:
        self.tally, self.faults, self.pins = Tally(), Faults("test"), Pins()
        self.pool = Pool(blocks)
        self.pins.bind(self.pool)
        self.memories = [Memory(blocks) for _ in range(ranks)]
        self.scheduler = HybridScheduler(
            [
                Client(
                    agent.socket_path,
                    spaces=[spaces_of(rank)[number] for rank in range(ranks)],
                    deadline_s=30.0,
                )
                for number in range(len(KINDS))
            ],
            KINDS,
            BLOCK,
            disk_wait_s=2.0,
            ranks=ranks,
            faults=self.faults,
            tally=self.tally,
            pins=self.pins,
            events=Events(hashes, ranks),
            weigh=False,
            **scheduler,
        )
        self.copiers = [[[copier(m) for m in kind] for kind in x.maps] for x in self.memories]
        self.workers = [
            Worker(
                Client(agent.socket_path, spaces=spaces_of(rank), deadline_s=30.0),
                [GroupsCopier(kind) for kind in copiers],
                rank,
                self.faults,
                self.tally,
            )
            for rank, copiers in enumerate(self.copiers)
        ]
        self.waiting: list[Live] = []
        self.loading: dict[str, Live] = {}
        self.running: list[Live] = []
        self.ended: dict[str, Live] = {}
        """Ended while a load was on its way: their blocks wait for it."""
        self.done: list[Live] = []
        self.preempted: set[str] = set()
        self.loaded_tokens = self.preemptions = self.failed = 0
        self._new: list[int] = []
        self._said: dict[str, int] = {}
        self._failed_names: set[str] = set()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.scheduler.close()

    @property
    def idle(self) -> bool:
        requests = self.waiting or self.running or self.loading or self.ended
        return not (requests or self.pins.any or self.scheduler.owed)

    # ---- requests come and go

    def add(self, request: Request, new_tokens: int) -> None:
        self.scheduler.arrived(request)
        self.waiting.append(Live(request, request.num_tokens + new_tokens))

    def abort(self, name: str) -> None:
        for queue in (self.waiting, self.running):
            for live in queue:
                if live.request.request_id == name:
                    queue.remove(live)
                    self._finish(live)
                    return
        if name in self.loading:
            live = self.ended[name] = self.loading.pop(name)
            assert not self.scheduler.finished(live.request)

    def _finish(self, live: Live) -> None:
        assert not self.scheduler.finished(live.request)
        self._free(live)
        self.done.append(live)

    # ---- blocks

    def _free(self, live: Live) -> None:
        for table in live.tables:
            self.pool.free_blocks([self.pool.blocks[b] for b in reversed(table) if b])
            table.clear()

    def _give_up(self, live: Live) -> None:
        """Blocks that the next token does not need any more."""
        for group, table in enumerate(live.tables):
            first = KIND_OF[group].first_needed(live.request.num_computed_tokens)
            for number, block in enumerate(table[:first]):
                if block:
                    self.pool.free_blocks([self.pool.blocks[block]])
                    table[number] = 0

    def _grow(self, live: Live, tokens: int, loaded: int = 0) -> bool:
        """Blocks for so many tokens; of those that a load skips, none."""
        lacking = []
        for group, table in enumerate(live.tables):
            skipped = KIND_OF[group].first_needed(loaded)
            for number in range(len(table), -(-tokens // BLOCK)):
                lacking.append((table, number >= skipped))
        if sum(wanted for _, wanted in lacking) > len(self.pool.free):
            return False
        for table, wanted in lacking:
            block = self.pool.free[-1] if wanted else self.pool.null_block
            if wanted:
                self.pool.touch([block])
                self._new.append(block.block_id)
            table.append(block.block_id)
        return True

    # ---- a step

    def step(self) -> None:
        scheduled: dict[str, int] = {}
        self._schedule_running(scheduled)
        self._admit(scheduled)
        tables = {x.request.request_id: tuple(x.tables) for x in self.running}
        plan = self.scheduler.plan(Output(scheduled, tables, self.preempted))
        self.preempted = set()
        for worker in self.workers:
            worker.fence(plan)
        for block in self._new:
            for memory in self.memories:
                memory.write(block, JUNK)
        self._new = []
        batch = [live for live in self.running if live.request.request_id in scheduled]
        for live in batch:
            self._forward(live, scheduled[live.request.request_id])
        report, failed = Report(), set()
        for worker in self.workers:
            worker.load(plan)
            worker.after_forward(plan)
            sent, received = worker.finished()
            assert not sent
            for name in received:
                self._said[name] = self._said.get(name, 0) + 1
            failed |= worker.take_failed()
            assert not worker.take_errors()
            report = report.merged(worker.take_report())
        received = {name for name, ranks in self._said.items() if ranks == len(self.workers)}
        self._said = {n: ranks for n, ranks in self._said.items() if n not in received}
        self._failed_names |= failed
        self.scheduler.reported(report, received)
        for name in received:
            self._received(name)
        for live in batch:
            self._settle(live, scheduled[live.request.request_id])

    def _schedule_running(self, scheduled: dict[str, int]) -> None:
        for live in tuple(self.running):
            if live not in self.running:
                continue
            self._give_up(live)
            request = live.request
            todo = min(CHUNK, request.num_tokens - request.num_computed_tokens)
            while not self._grow(live, request.num_computed_tokens + todo):
                if self.scheduler.holds_blocks:
                    break
                victim = self.running[-1]
                self._preempt(victim)
                scheduled.pop(victim.request.request_id, None)
                if victim is live:
                    break
            else:
                scheduled[request.request_id] = todo

    def _preempt(self, live: Live) -> None:
        self.preemptions += 1
        self.running.remove(live)
        self._free(live)
        live.request.num_computed_tokens = 0
        self.preempted.add(live.request.request_id)
        self.waiting.insert(0, live)

    def _admit(self, scheduled: dict[str, int]) -> None:
        while self.waiting and len(self.running) < 3 and not self.preempted:
            live = self.waiting[0]
            request, external, waits = live.request, 0, False
            if request.num_computed_tokens == 0:
                external, waits = self.scheduler.matched(request, 0)
                assert waits == (external > 0)
                assert external <= request.num_tokens - 1
            todo = min(CHUNK, request.num_tokens - request.num_computed_tokens)
            if not self._grow(live, external or request.num_computed_tokens + todo, external):
                break
            self.waiting.pop(0)
            self.scheduler.admitted(request, live.tables, external)
            if waits:
                request.num_computed_tokens = external
                self.loading[request.request_id] = live
            else:
                self.running.append(live)
                scheduled[request.request_id] = todo

    def _received(self, name: str) -> None:
        failed = name in self._failed_names
        self._failed_names.discard(name)
        live = self.ended.pop(name, None)
        if live is not None:
            self._free(live)
            return
        live = self.loading.pop(name)
        if failed:
            self.failed += 1
            self._free(live)
            live.request.num_computed_tokens = 0
        else:
            self.loaded_tokens += live.request.num_computed_tokens
        self.waiting.insert(0, live)

    # ---- computing

    def _forward(self, live: Live, todo: int) -> None:
        request = live.request
        computed, tokens = request.num_computed_tokens, request.all_token_ids
        for group, table in enumerate(live.tables):
            first = KIND_OF[group].first_needed(computed)
            for number in range(first, computed // BLOCK):
                for rank, memory in enumerate(self.memories):
                    right = group_page(tokens[: (number + 1) * BLOCK], group, rank)
                    assert memory.read(table[number]) == right, (request.request_id, group, number)
            for number in range(computed // BLOCK, (computed + todo) // BLOCK):
                for rank, memory in enumerate(self.memories):
                    page = group_page(tokens[: (number + 1) * BLOCK], group, rank)
                    memory.write(table[number], page)

    def _settle(self, live: Live, todo: int) -> None:
        request = live.request
        if live not in self.running:
            return
        request.num_computed_tokens += todo
        if request.num_computed_tokens < request.num_tokens:
            return
        tokens = request.all_token_ids
        tokens.append((len(tokens) * 7919 + sum(tokens[:4])) % 50_000)
        if request.num_tokens >= live.target:
            self.running.remove(live)
            self._finish(live)


def group_page(tokens: list[int], group: int, rank: int) -> bytes:
    return page_of([group, *tokens], rank)


class Output:
    """The parts of SchedulerOutput that are read."""

    def __init__(
        self, scheduled: dict[str, int], tables: dict[str, Any], preempted: set[str]
    ) -> None:
        self.num_scheduled_tokens = scheduled
        self.preempted_req_ids = preempted
        self.kv_connector_block_state = self
        self.get_block_ids = tables.get
