"""The worker's two threads: one for loads, one for saves.

A save that ran in the step would add its copy to every prompt's time to first token. Here it runs
beside the next steps, and whoever is about to reuse a block it reads fences it first. Its thread
gives way to the engine's, since nobody waits for a save (`python -m bench miss` has what it costs).
A load is waited for, so it has a thread of its own that gives way to nobody.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onggi.client import Client
from onggi.clock import Clock, monotonic
from onggi.connectors.vllm.copier import Copier, Load
from onggi.connectors.vllm.copying import copy_load
from onggi.connectors.vllm.cores import give_way, let_go
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.metadata import LoadJob, SaveJob
from onggi.connectors.vllm.tally import Tally
from onggi_core.wire.requests import StoreOutcome

SAVE_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Reserved, copied and sealed at once: some 5 ms of copying, which is what a fence may wait for and
how soon the first blocks of a long prompt can be found."""

SAVES_NICE: Final = 15
"""Of the thread that saves: a twenty-eighth of a core that the engine's threads want too, and all
of one that they leave."""

SAVE_AFTER_S: Final = 0.003
"""How long a save leaves the interpreter to its own step: sampling and what else follows the
forward pass is Python. A fence does not wait."""

QUEUED_BLOCKS_MAX: Final = 65_536
"""Blocks waiting to be saved. Each costs a key and two numbers, 200 bytes: 13 MiB. Past it saves
are dropped: a slow agent may cost hits but not memory, and not the engine's free blocks."""

FENCE_WAIT_S: Final = 0.1
"""How long a step waits for a running save of blocks it reuses, before it is told to drop them."""

LOOK_AROUND_S: Final = 5.0
"""How often the idle thread looks whether the arena has grown or is another one."""


@dataclass
class Moved:
    """What ended since it was last asked. loads: with the number of leading blocks loaded, and the
    seconds they took. saves: job -> the leading blocks that the agent has now."""

    loads: list[tuple[LoadJob, int, float]] = field(default_factory=list)
    saves: dict[int, int] = field(default_factory=dict)


NOTHING_MOVED: Final = Moved()
"""Never added to."""


class Mover:
    """Jobs in, results out. The threads start with start() or the first job and end with
    stop()."""

    def __init__(
        self,
        client: Client,
        copiers: Sequence[Copier],
        rank: int,
        faults: Faults,
        tally: Tally,
        clock: Clock = monotonic,
        cores: frozenset[int] = frozenset(),
    ) -> None:
        """copiers: one for each of the client's spaces."""
        self._cores = cores
        self._client = client
        self._copiers = copiers
        self._rank = rank
        self._faults = faults
        self._tally = tally
        self._now_s = clock
        self._batches = [max(1, SAVE_BATCH_BYTES // space.page_bytes) for space in client.spaces]
        self._lock = threading.Lock()
        self._for_loads = threading.Condition(self._lock)
        self._for_saves = threading.Condition(self._lock)
        self._save_over = threading.Condition(self._lock)
        self._helps: deque[Sequence[Load]] = deque()
        self._loads: deque[tuple[LoadJob, Any]] = deque()
        self._saves: deque[tuple[SaveJob, Any, float]] = deque()
        """With the time that they came."""
        self._queued_blocks = 0
        self._open: set[int] = set()
        self._cancelled: set[int] = set()
        self._moved = Moved()
        self._stopping = False
        self._fenced = False  # somebody waits for saves
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin with what there is to do before the first job: the arena's page table."""
        with self._lock:
            self._wake()

    def help(self, loads: Sequence[Load]) -> None:
        """Bring what these still lack, before anything else. Nobody counts on it: the engine's
        thread copies what it needs and finds undone."""
        with self._lock:
            self._helps.append(loads)
            self._wake()
            self._for_loads.notify()

    def submit_load(self, job: LoadJob, after: Any) -> None:
        """after: the copier's mark, behind the last use of the job's blocks."""
        with self._lock:
            self._loads.append((job, after))
            self._wake()
            self._for_loads.notify()

    def submit_save(self, job: SaveJob, after: Any) -> None:
        """after: the copier's mark, made when the blocks' last write was under way."""
        with self._lock:
            if self._queued_blocks + len(job.keys) > QUEUED_BLOCKS_MAX:
                self._moved.saves[job.number] = 0
                self._tally.add("refused_blocks", len(job.keys))
                return
            self._queued_blocks += len(job.keys)
            self._open.add(job.number)
            self._saves.append((job, after, self._now_s()))
            self._wake()
            self._for_saves.notify()  # and nobody else: who wakes wants the engine's interpreter

    def fence(self, numbers: Iterable[int]) -> None:
        """On return these saves read no block any more, or what they read is never kept."""
        with self._lock:
            mine = self._open.intersection(numbers)
            if not mine:
                return
            self._fenced = True
            self._for_saves.notify()
            self._save_over.wait_for(lambda: not mine & self._open, FENCE_WAIT_S)
            self._fenced = False
            self._cancelled |= mine & self._open

    def take(self) -> Moved:
        """What ended since the last call."""
        if not (self._moved.loads or self._moved.saves):
            return NOTHING_MOVED
        with self._lock:
            moved, self._moved = self._moved, Moved()
            return moved

    def stop(self, timeout_s: float) -> None:
        """Drop what waits, end what runs."""
        with self._lock:
            self._stopping = True
            self._for_loads.notify()
            self._for_saves.notify()
        for thread in self._threads:
            thread.join(timeout_s)

    def _wake(self) -> None:
        if not self._threads:
            for name, run in (("onggi-loads", self._run_loads), ("onggi-saves", self._run_saves)):
                thread = threading.Thread(target=run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    # ---- on the thread for loads

    def _run_loads(self) -> None:
        let_go(self._cores)
        wait_s = 0.0
        while True:
            with self._lock:
                self._for_loads.wait_for(
                    lambda: self._stopping or self._helps or self._loads, wait_s
                )
                if self._stopping:
                    return
                helps = self._helps.popleft() if self._helps else ()
                load = self._loads.popleft() if self._loads and not helps else None
            if helps:
                self._help(helps)
            elif load is not None:
                self._run_load(*load)
            else:
                wait_s = self._idle()

    def _help(self, loads: Sequence[Load]) -> None:
        for load in loads:
            try:
                load.help()
            except Exception as error:  # noqa: BLE001 - the load's own end() says that it failed
                self._faults.note("load", error)

    def _idle(self) -> float:
        """Something useful while there is no job; how long to wait for one then."""
        try:
            return 0.0 if self._client.populate_next() else LOOK_AROUND_S
        except Exception as error:  # noqa: BLE001 - a thread that ended would report no job any more
            self._faults.note("populate", error)
            return LOOK_AROUND_S

    def _run_load(self, job: LoadJob, after: Any) -> None:
        began_s, blocks = self._now_s(), 0
        try:
            blocks = copy_load(self._client, self._copiers, self._rank, job, after, self._now_s)
        except Exception as error:  # noqa: BLE001 - an unreported load would hold its blocks for ever
            self._faults.note("load", error)
        took_s = self._now_s() - began_s
        self._tally.add("load_seconds", took_s)
        with self._lock:
            self._moved.loads.append((job, blocks, took_s))

    # ---- on the thread for saves

    def _run_saves(self) -> None:
        let_go(self._cores)
        give_way(SAVES_NICE)
        while True:
            with self._lock:
                self._for_saves.wait_for(lambda: self._stopping or self._saves)
                past_s = self._now_s() - self._saves[0][2] if self._saves else SAVE_AFTER_S
                if 0 <= past_s < SAVE_AFTER_S:
                    self._for_saves.wait_for(self._hurried, SAVE_AFTER_S - past_s)
                if self._stopping:
                    return
                job, after, _ = self._saves.popleft()
            self._run_save(job, after)

    def _hurried(self) -> bool:
        return self._stopping or self._fenced

    def _run_save(self, job: SaveJob, after: Any) -> None:
        began_s, kept, batch = self._now_s(), 0, self._batches[job.kind]
        try:
            for begin in range(0, len(job.keys), batch):
                some = min(batch, len(job.keys) - begin)
                kept += self._save_some(job, begin, some, after)
                if kept < begin + some:
                    break  # the rest of the chain is not worth trying
        except Exception as error:  # noqa: BLE001 - an unreported save would hold its blocks for ever
            self._faults.note("save", error)
        self._tally.add("save_seconds", self._now_s() - began_s)
        with self._lock:
            self._queued_blocks -= len(job.keys)
            self._open.discard(job.number)
            self._cancelled.discard(job.number)
            self._moved.saves[job.number] = kept
            self._save_over.notify_all()

    def _save_some(self, job: SaveJob, begin: int, count: int, after: Any) -> int:
        """One batch. Returns how many of its blocks the agent has now."""
        if self._stopping or job.number in self._cancelled:
            return 0
        keys = job.keys[begin : begin + count]
        parent = job.keys[begin - 1] if begin else job.parent
        ticket = self._client.store_prepare(keys, parent=parent, space=job.kind)
        granted = ticket.granted
        refused = len(keys) - len(granted) - ticket.existing
        self._tally.add("refused_blocks", refused)
        self._tally.add("existing_blocks", ticket.existing)
        sealed = 0
        if granted:
            outcome = StoreOutcome.ABANDONED
            try:
                pages = ticket.pages()
                arena = self._client.arena(pages)
                blocks = [job.block_ids[begin + n] for n in granted]
                if arena is not None and self._now_s() < pages.expires_s:
                    pairs = zip(blocks, pages.offsets, strict=True)
                    whole = self._copiers[job.kind].copy_in(arena, pairs, after)
                    with self._lock:  # a fence from here on comes after the last byte was read
                        if whole and job.number not in self._cancelled:
                            outcome = StoreOutcome.SEALED
            finally:
                sealed = self._client.finish_store(ticket, outcome)
            self._tally.add("saved_blocks", sealed)
            self._tally.add("saved_bytes", sealed * ticket.page_bytes)
        return ticket.existing + sealed
