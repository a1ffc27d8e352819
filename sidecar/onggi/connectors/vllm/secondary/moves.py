"""Copies between vLLM's host memory and the agent, on two threads beside the engine's steps.

A request waits for a load, so loads have a thread to themselves; nobody waits for a store, so that
thread gives way to the engine's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi.client import Client
from onggi.connectors.vllm.cores import allowed, give_way, let_go
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.mover import SAVES_NICE

STOP_WAIT_S: Final = 35.0
"""For a thread to end its job: the longest wait for the disk that can be set, and a call's own
deadline. Rows must not go away under a copy."""


@dataclass(frozen=True)
class Chain:
    """Chunks of one group, in the order of their tokens. rows: vLLM's host memory, one writable
    buffer a chunk. parent: our key of the chunk before the first."""

    names: tuple[bytes, ...]
    keys: list[bytes]
    rows: list[memoryview]
    parent: bytes


@dataclass(frozen=True)
class Job:
    """number: vLLM's. Each chain succeeds or fails by itself."""

    number: int
    chains: tuple[Chain, ...]

    @property
    def names(self) -> tuple[bytes, ...]:
        return tuple(name for chain in self.chains for name in chain.names)


@dataclass(frozen=True)
class Ended:
    """done: the chunks that were moved, or that the agent had already."""

    job: Job
    is_load: bool
    done: tuple[bytes, ...]
    took_s: float


class Moves:
    """Jobs in, results out. How many wait is bounded by vLLM's host memory, which each holds a part
    of."""

    def __init__(self, client: Client, faults: Faults, *, disk_wait_s: float) -> None:
        self._client = client
        self._faults = faults
        self._disk_wait_s = disk_wait_s
        self._turn = threading.Condition()
        self._queues: dict[str, deque[Job]] = {"load": deque(), "store": deque()}
        self._running = 0
        self._ended: list[Ended] = []
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def load(self, job: Job) -> None:
        self._submit("load", job)

    def store(self, job: Job) -> None:
        self._submit("store", job)

    def _submit(self, queue: str, job: Job) -> None:
        with self._turn:
            if not self._threads:
                self._begin()
            self._queues[queue].append(job)
            self._turn.notify_all()

    def _begin(self) -> None:
        run: tuple[tuple[str, Callable[[Chain], int], int], ...] = (
            ("load", self._load, 0),
            ("store", self._store, SAVES_NICE),
        )
        for arguments in run:
            name = f"onggi-tier-{arguments[0]}s"
            thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def take(self) -> list[Ended]:
        """What ended since the last call."""
        with self._turn:
            ended, self._ended = self._ended, []
        return ended

    def drain(self) -> None:
        """Until no job waits or runs."""
        with self._turn:
            self._turn.wait_for(lambda: not self._running and not any(self._queues.values()))

    def stop(self) -> bool:
        """End what runs and drop what waits. False: a copy still runs, so its memory must stay."""
        with self._turn:
            self._stopping = True
            for name, queue in self._queues.items():
                self._ended += [Ended(job, name == "load", (), 0.0) for job in queue]
                queue.clear()
            self._turn.notify_all()
        for thread in self._threads:
            thread.join(STOP_WAIT_S)
        return not any(thread.is_alive() for thread in self._threads)

    # ---- on the two threads

    def _run(self, name: str, move: Callable[[Chain], int], nice: int) -> None:
        let_go(allowed())
        if nice:
            give_way(nice)
        queue = self._queues[name]
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._stopping or queue)
                if self._stopping:
                    return
                job = queue.popleft()
                self._running += 1
            began_s, done = self._client.now_s(), self._each(name, move, job.chains)
            ended = Ended(job, name == "load", done, self._client.now_s() - began_s)
            del job  # its rows are vLLM's, which may want them back
            with self._turn:
                self._running -= 1
                self._ended.append(ended)
                self._turn.notify_all()

    def _each(
        self, name: str, move: Callable[[Chain], int], chains: Sequence[Chain]
    ) -> tuple[bytes, ...]:
        done: list[bytes] = []
        for chain in chains:
            try:
                done += chain.names[: move(chain)]
            except Exception as error:  # noqa: BLE001 - an unreported job would hold its memory for ever
                self._faults.note(name, error)
        return tuple(done)

    def _load(self, chain: Chain) -> int:
        rows: Any = chain.rows
        return self._client.load(chain.keys, rows, wait_s=self._disk_wait_s)

    def _store(self, chain: Chain) -> int:
        """All or nothing is told of: what was refused may lie between two that were not."""
        rows: Any = chain.rows
        stored = self._client.store(chain.keys, rows, parent=chain.parent)
        return 0 if stored.refused else len(chain.keys)
