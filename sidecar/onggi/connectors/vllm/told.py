"""The blocks of one kind that routers were told of, and in which tier each was said to be.

One tier a block, the nearest: it is what a load of it would cost. Blocks that were told together
share what there is to say of them, so that it can be said again when they move.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from onggi_core.wire.locate import At

TOLD_MAX: Final = 65_536
"""Blocks whose moves and end would be told; some 400 bytes each, and 4 a token. The oldest are
forgotten first: a router that counts on one of them is wrong until it asks."""


@dataclass(frozen=True)
class BlocksStored:
    """hashes: the engine's, one a block, the first one following `parent`. at: the tier that they
    are in now."""

    groups: tuple[int, ...]
    hashes: tuple[bytes, ...]
    parent: bytes | None
    token_ids: tuple[int, ...]
    block_tokens: int
    lora_id: int | None
    lora_name: str | None
    at: At = At.HOST


@dataclass(frozen=True)
class BlocksRemoved:
    """at: the tier that they are not in any more."""

    groups: tuple[int, ...]
    hashes: tuple[bytes, ...]
    at: At = At.HOST


Event = BlocksStored | BlocksRemoved


class Run(NamedTuple):
    """Blocks that follow each other, by the engine's names. tokens: of all of them."""

    groups: tuple[int, ...]
    hashes: tuple[bytes, ...]
    parent: bytes | None
    tokens: array[int]
    block_tokens: int
    lora_id: int | None
    lora_name: str | None

    def stored(self, first: int, end: int, at: At) -> BlocksStored:
        """The event of some of them."""
        return BlocksStored(
            self.groups,
            self.hashes[first:end],
            self.hashes[first - 1] if first else self.parent,
            tuple(self.tokens[first * self.block_tokens : end * self.block_tokens]),
            self.block_tokens,
            self.lora_id,
            self.lora_name,
            at,
        )


class Block:
    """One that was told of. number: in its run. at: the tier that was told of last."""

    __slots__ = ("at", "number", "run")

    def __init__(self, run: Run, number: int, at: int) -> None:
        self.run = run
        self.number = number
        self.at = at


Move = tuple[bytes, Block, int]
"""A key, its block as it was told of so far, and the tier that it is in now."""


class ToldBlocks:
    """Of the scheduler; not thread-safe. All calls answer the events that follow."""

    def __init__(self, groups: tuple[int, ...]) -> None:
        self._groups = groups
        self.blocks: dict[bytes, Block] = {}
        """By key."""

    def knows(self, key: bytes) -> bool:
        return key in self.blocks

    def tell(self, keys: Sequence[bytes], run: Run, tiers: bytes) -> list[Event]:
        """The first blocks of a run are in these tiers, for certain: what was asked about them
        before says nothing any more."""
        moves: list[Move] = []
        for number, (key, at) in enumerate(zip(keys, tiers, strict=True)):
            was = self.blocks.get(key)
            new = Block(run, number, was.at if was is not None else At.NOWHERE)
            if new.at == at:
                self.blocks[key] = new
            else:
                moves.append((key, new, at))
        return self._moved(moves)

    def found(self, keys: Sequence[bytes], run: Run, tiers: bytes) -> list[Event]:
        """The same, of those alone that nobody was told of: the tiers are as a lookup guesses."""
        return self._moved(
            [
                (key, Block(run, number, At.NOWHERE), at)
                for number, (key, at) in enumerate(zip(keys, tiers, strict=True))
                if key not in self.blocks
            ]
        )

    def missing(self, keys: Iterable[bytes]) -> list[Event]:
        """No tier has these."""
        blocks = self.blocks
        return self._moved([(key, blocks[key], At.NOWHERE) for key in keys if key in blocks])

    def clear(self) -> list[Event]:
        return self.missing(tuple(self.blocks))

    def located(self, found: Sequence[Move]) -> list[Event]:
        """Where some of them are."""
        return self._moved([move for move in found if move[1].at != move[2]])

    # ---- inside

    def _moved(self, moves: Sequence[Move]) -> list[Event]:
        """Where blocks came before where they left: nobody who listens is without them between."""
        if not moves:
            return []
        events: list[Event] = list(_stored(moves))
        for tier in (At.HOST, At.DISK):
            gone = [block.run.hashes[block.number] for _, block, _ in moves if block.at == tier]
            if gone:
                events.append(BlocksRemoved(self._groups, tuple(gone), tier))
        for key, block, at in moves:
            if at:
                block.at = at
                self.blocks[key] = block
            else:
                self.blocks.pop(key, None)
        while len(self.blocks) > TOLD_MAX:
            del self.blocks[next(iter(self.blocks))]
        return events


def _stored(moves: Sequence[Move]) -> Iterable[BlocksStored]:
    """One event for blocks in a row that came to the same tier."""
    begin = 0
    for end in range(1, len(moves) + 1):
        _, first, at = moves[begin]
        if end < len(moves):
            _, block, its = moves[end]
            if its == at and block.run is first.run and block.number == first.number + end - begin:
                continue
        if at:
            yield first.run.stored(first.number, first.number + end - begin, At(at))
        begin = end
