"""What was stored and what is gone again, for routers that listen to the engine's KV events.

A block is told of once all ranks have stored it, by the engine's own hash of it. The agent says
nothing when it gives a block up, so its end is told when a lookup finds a block that was told of
missing. Engines that publish no events keep nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.metadata import Report, SaveJob

TOLD_MAX: Final = 65_536
"""Blocks whose end would be told; some 250 bytes each. The oldest are forgotten first: a router
that counts on one of them is wrong until it asks."""

TAKEN_MAX: Final = 16_384
"""Events that wait for the engine's next step. Past it they are dropped, as vLLM does."""


@dataclass(frozen=True)
class BlocksStored:
    """hashes: the engine's, one a block, the first one following `parent`."""

    groups: tuple[int, ...]
    hashes: tuple[bytes, ...]
    parent: bytes | None
    token_ids: tuple[int, ...]
    block_tokens: int
    lora_id: int | None
    lora_name: str | None


@dataclass(frozen=True)
class BlocksRemoved:
    groups: tuple[int, ...]
    hashes: tuple[bytes, ...]


Event = BlocksStored | BlocksRemoved


@dataclass
class _Planned:
    kind: Kind
    keys: tuple[bytes, ...]
    event: BlocksStored
    kept: int
    ranks: int = 0


class Events:
    """Of the scheduler; not thread-safe."""

    def __init__(self, hash_tokens: int = 0, ranks: int = 1) -> None:
        """hash_tokens: tokens of each of the engine's hashes; 0: nobody listens."""
        self._hash_tokens = hash_tokens
        self._ranks = ranks
        self._planned: dict[int, _Planned] = {}
        self._told: dict[tuple[Kind, bytes], bytes] = {}
        self._events: list[Event] = []

    def planned(self, job: SaveJob, request: Any, kind: Kind, first: int) -> None:
        """A save was handed to the workers; first: the number of its first block."""
        if not self._hash_tokens:
            return
        end, size = first + len(job.keys), kind.block_tokens
        hashes = [self._hash(request, kind, block) for block in range(first, end)]
        parent = self._hash(request, kind, first - 1) if first else None
        if None in hashes or (first and parent is None):
            return  # the engine has no name for them yet
        lora = request.lora_request
        event = BlocksStored(
            kind.groups,
            tuple(one for one in hashes if one is not None),
            parent,
            tuple(request.all_token_ids[first * size : end * size]),
            size,
            lora.lora_int_id if lora is not None else None,
            lora.lora_name if lora is not None else None,
        )
        self._planned[job.number] = _Planned(kind, job.keys, event, len(job.keys))

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
                self._stored(planned)

    def _stored(self, planned: _Planned) -> None:
        """Tell of those that were not told of before: they are the last ones of a chain, or all."""
        kind, event = planned.kind, planned.event
        names = [(kind, key) for key in planned.keys[: planned.kept]]
        new = 0
        while new < len(names) and names[new] in self._told:
            new += 1
        if new == len(names):
            return
        size = event.block_tokens
        self._add(
            BlocksStored(
                event.groups,
                event.hashes[new : planned.kept],
                event.hashes[new - 1] if new else event.parent,
                event.token_ids[new * size : planned.kept * size],
                size,
                event.lora_id,
                event.lora_name,
            )
        )
        self._told.update(zip(names, event.hashes, strict=False))
        while len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def missing(self, kind: Kind, keys: Iterable[bytes]) -> None:
        """A lookup did not find these."""
        if not self._told:
            return
        gone = [self._told.pop((kind, key), None) for key in keys]
        self._removed(kind.groups, [one for one in gone if one is not None])

    def reset(self) -> None:
        """Nothing that was stored is found again."""
        for kind in {kind for kind, _ in self._told}:
            hashes = [one for (which, _), one in self._told.items() if which == kind]
            self._removed(kind.groups, hashes)
        self._told.clear()
        self._planned.clear()

    def _removed(self, groups: tuple[int, ...], hashes: Sequence[bytes]) -> None:
        if hashes:
            self._add(BlocksRemoved(groups, tuple(hashes)))

    def _add(self, event: Event) -> None:
        if len(self._events) < TAKEN_MAX:
            self._events.append(event)

    def take(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events
