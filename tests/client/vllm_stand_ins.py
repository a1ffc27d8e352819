"""Plain stand-ins for what vLLM hands to a connector, and an engine small enough to see through.

TinyEngine keeps the order of calls of one vLLM step (docs of the connector say where that is
known from) and a "KV cache" in a bytearray: computing a block writes bytes that follow from the
tokens before it, so a wrong byte anywhere is seen.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from onggi import Client, SpaceSpec
from onggi.connectors.vllm.copier import HostCopier
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.layout import PageMap, Run
from onggi.connectors.vllm.scheduler import Scheduler
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.worker import Worker

BLOCK = 16
PAGE = 4096
SPACES = [SpaceSpec(bytes([rank + 1]) * 16, PAGE, BLOCK) for rank in range(2)]
SPACE = SPACES[0]
LAYERS = ("l0", "l1")
PATIENT_S = 30.0
"""For a call to an agent that is a thread of the test."""


@dataclass
class Request:
    """What the scheduler side reads of vLLM's Request."""

    request_id: str
    all_token_ids: list[int]
    num_computed_tokens: int = 0
    cache_salt: str | None = None
    lora_request: Any = None
    mm_features: list[Any] = field(default_factory=list)
    prompt_embeds: Any = None
    skip_reading_prefix_cache: bool = False
    resumable: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def step_output(
    scheduled: dict[str, int],
    tables: dict[str, list[int]],
    preempted: set[str] | None = None,
    *,
    sync: bool = False,
) -> Any:
    """The parts of SchedulerOutput that are read."""
    state = SimpleNamespace(
        get_block_ids=lambda request_id: (tables[request_id],) if request_id in tables else None
    )
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        preempted_req_ids=preempted,
        kv_connector_block_state=state,
        has_sync_kv_loads=sync,
    )


def page_of(tokens: list[int], rank: int = 0) -> bytes:
    """The bytes a block holds after computing: they follow from all tokens up to its end."""
    seed = hashlib.sha256(repr((tokens, rank)).encode()).digest()
    return (seed * (PAGE // 32))[:PAGE]


class Memory:
    """A KV cache of `blocks` pages in host memory, in two layers of half a page each."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.bytes = bytearray(blocks * PAGE)
        self._first = ctypes.c_char.from_buffer(self.bytes)
        half, base = PAGE // 2, ctypes.addressof(self._first)
        runs = (Run(base, half, half, 0, 0), Run(base + blocks * half, half, half, half, 1))
        self.map = PageMap(runs, PAGE, blocks, LAYERS)

    def write(self, block: int, page: bytes) -> None:
        half = PAGE // 2
        second = self.blocks * half
        self.bytes[block * half : (block + 1) * half] = page[:half]
        self.bytes[second + block * half : second + (block + 1) * half] = page[half:]

    def read(self, block: int) -> bytes:
        half = PAGE // 2
        second = self.blocks * half
        return bytes(
            self.bytes[block * half : (block + 1) * half]
            + self.bytes[second + block * half : second + (block + 1) * half]
        )


class Sides:
    """A scheduler side and a worker side for each rank on one agent, as vLLM would make them."""

    def __init__(self, agent: Any, blocks: int = 256, ranks: int = 1, **kwargs: Any) -> None:
        deadline_s = kwargs.pop("deadline_s", PATIENT_S)
        make_copier = kwargs.pop("copier", HostCopier)
        spaces = kwargs.pop("spaces", SPACES)
        kwargs.setdefault("disk_wait_s", 2.0)
        layers = LAYERS if kwargs.pop("layerwise", False) else ()
        self.unasked: set[int] = kwargs.pop("unasked", set())
        """Ranks that are never told to save."""
        self.tally = Tally()
        self.faults = Faults("test")
        self.memories = [Memory(blocks) for _ in range(ranks)]
        self.scheduler = Scheduler(
            Client(agent.socket_path, spaces=spaces[:ranks], deadline_s=deadline_s),
            BLOCK,
            ranks=ranks,
            faults=self.faults,
            tally=self.tally,
            **kwargs,
        )
        self.copiers = [make_copier(memory.map) for memory in self.memories]
        self.workers = []
        for rank, copier in enumerate(self.copiers):
            client = Client(agent.socket_path, spaces=[spaces[rank]], deadline_s=deadline_s)
            how: dict[str, Any] = {"layers": layers, "saves_unasked": rank in self.unasked}
            self.workers.append(
                Worker(client, [copier], rank, self.faults, self.tally, sync=copier, **how)
            )

    @property
    def worker(self) -> Worker:
        (only,) = self.workers
        return only

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.scheduler.close()
