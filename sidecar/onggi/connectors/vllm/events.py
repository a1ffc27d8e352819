"""What was stored, where it is, and what is gone again, for routers that listen to the engine's KV
events.

A block is told of once all ranks have stored it, or a lookup has found it, by the engine's own hash
of it. Its moves between the tiers and its end are told when the agent was asked about it
(sweep.py), or when a lookup finds it missing. Engines that publish no events keep nothing here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi.client import Client
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.metadata import Report, SaveJob
from onggi.connectors.vllm.sweep import Sweep
from onggi.connectors.vllm.told import Block, Event, Run, ToldBlocks
from onggi.outcomes import Looked
from onggi_core.wire.locate import At

TAKEN_MAX: Final = 16_384
"""Events that wait for the engine's next step. Past it they are dropped, as vLLM does."""

_HOST: Final = bytes([At.HOST])
_DISK: Final = bytes([At.DISK])


@dataclass
class _Planned:
    kind: Kind
    keys: tuple[bytes, ...]
    run: Run
    kept: int
    ranks: int = 0


class Events:
    """Of the scheduler; not thread-safe."""

    def __init__(self, hash_tokens: int = 0, ranks: int = 1) -> None:
        """hash_tokens: tokens of each of the engine's hashes; 0: nobody listens."""
        self._hash_tokens = hash_tokens
        self._ranks = ranks
        self._planned: dict[int, _Planned] = {}
        self._told: dict[Kind, ToldBlocks] = {}
        self._sweeps: list[Sweep[Block]] = []
        self._events: list[Event] = []

    def follow(self, kind: Kind, client: Client) -> None:
        """From now on the agent is asked where blocks of this kind are."""
        if self._hash_tokens:
            told = self._of(kind)
            self._sweeps.append(
                Sweep(
                    client,
                    told.blocks,
                    key=lambda key, _: key,
                    located=lambda found: self._add(told.located(found)),
                )
            )

    def _of(self, kind: Kind) -> ToldBlocks:
        return self._told.setdefault(kind, ToldBlocks(kind.groups))

    def planned(self, job: SaveJob, request: Any, kind: Kind, first: int) -> None:
        """A save was handed to the workers; first: the number of its first block."""
        if not self._hash_tokens:
            return
        run = self._run(request, kind, first, first + len(job.keys))
        if run is not None:
            self._planned[job.number] = _Planned(kind, job.keys, run, len(job.keys))

    def _run(self, request: Any, kind: Kind, first: int, end: int) -> Run | None:
        """Blocks of a request; None: the engine has no name for them yet."""
        size = kind.block_tokens
        hashes = [self._hash(request, kind, block) for block in range(first, end)]
        parent = self._hash(request, kind, first - 1) if first else None
        if None in hashes or (first and parent is None):
            return None
        lora = request.lora_request
        return Run(
            kind.groups,
            tuple(one for one in hashes if one is not None),
            parent,
            array("i", request.all_token_ids[first * size : end * size]),
            size,
            lora.lora_int_id if lora is not None else None,
            lora.lora_name if lora is not None else None,
        )

    def _hash(self, request: Any, kind: Kind, block: int) -> bytes | None:
        """Of the last of the engine's hashed pieces in the block; it covers all before it."""
        at = (block + 1) * kind.block_tokens // self._hash_tokens - 1
        hashes = request.block_hashes
        return hashes[at] if at < len(hashes) else None

    def reported(self, report: Report) -> None:
        """What the workers did."""
        for number in report.saves_dropped:
            self._planned.pop(number, None)
        for number, ranks in report.saves_over.items():
            planned = self._planned.get(number)
            if planned is None:
                continue
            planned.kept = min(planned.kept, report.kept.get(number, 0))
            planned.ranks += ranks
            if planned.ranks >= self._ranks:
                del self._planned[number]
                keys = planned.keys[: planned.kept]
                self._add(self._of(planned.kind).tell(keys, planned.run, _HOST * len(keys)))

    def found(
        self, request: Any, kind: Kind, first: int, keys: Sequence[bytes], looked: Looked
    ) -> None:
        """A lookup of these blocks of a request; first: the number of the first. Those that another
        engine stored, or this one before it was restarted, are told of now. Where the last one is
        known, all are: a look at each would be a cost of every hit."""
        if not (self._hash_tokens and looked.pending):
            return
        told, some = self._of(kind), keys[: looked.pending]
        if told.knows(some[-1]):
            return
        run = self._run(request, kind, first, first + len(some))
        if run is not None:
            ready = min(looked.ready, len(some))
            self._add(told.found(some, run, _HOST * ready + _DISK * (len(some) - ready)))

    def missing(self, kind: Kind, keys: Iterable[bytes]) -> None:
        """A lookup did not find these."""
        if kind in self._told:
            self._add(self._told[kind].missing(keys))

    def reset(self) -> None:
        """Nothing that was stored is found again."""
        for told in self._told.values():
            self._add(told.clear())
        self._planned.clear()

    def _add(self, events: Sequence[Event]) -> None:
        self._events += events[: max(0, TAKEN_MAX - len(self._events))]

    def take(self) -> list[Event]:
        """The events since the last call. Once a step."""
        for sweep in self._sweeps:
            sweep.step()
        events, self._events = self._events, []
        return events
