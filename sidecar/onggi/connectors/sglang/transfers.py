"""Copies of whole chains between the engine's host pool and the arena, piece by piece.

Each byte is copied once. A chain is moved in parts, and the next part of a load is asked for before
the present one is copied, so that what the agent does for it, a read from disk included, goes on
beside the copying.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from onggi import Client, Load, LoadOutcome, PendingLoad, StoreOutcome, StoreSlot, StoreTicket
from onggi.connectors.sglang.pages import Row
from onggi.copies import Piece
from onggi.crew import move

PART_BYTES: Final = 32 * 1024 * 1024
"""Most of one part, some five milliseconds of copying: its pages are held all the while, and two
parts of a load are held at a time."""


def load(client: Client, keys: Sequence[bytes], rows: Sequence[Row], wait_s: float) -> int:
    """Fill the pages of the longest leading run; returns its length. What lies behind it may have
    been written to. wait_s: how long blocks may take to come from disk, all parts together."""
    until_s = client.now_s() + wait_s
    step = _step(client)
    parts = iter(range(0, len(keys), step))
    ahead: deque[tuple[int, PendingLoad]] = deque()
    done = 0

    def ask_for_next() -> None:
        begin = next(parts, None)
        if begin is not None:
            some = keys[begin : begin + step]
            left_s = max(0.0, until_s - client.now_s())
            ahead.append((begin + len(some), client.load_prepare(some, wait_s=left_s)))

    ask_for_next()
    try:
        while ahead:
            end, pending = ahead[0]
            got = pending.wait(max(0.0, until_s - client.now_s()) + client.deadline_s)
            ahead.popleft()
            if got.blocks == end - done:
                ask_for_next()
            done += _take(client, got, rows[done : done + got.blocks])
            if done < end:
                break
    finally:
        for _, pending in ahead:
            pending.cancel()
    return done


def _take(client: Client, load: Load, rows: Sequence[Row]) -> int:
    """Copy out what was found and give its pages back; how many. That they could be given back
    shows that they were ours until then."""
    if not load.blocks:
        return 0
    outcome, kept = LoadOutcome.FAILED, False
    try:
        pages = load.pages()
        arena = client.arena(pages)
        if arena is not None and arena.copy_out(_pieces(pages.offsets, rows), move):
            outcome = LoadOutcome.LOADED if client.now_s() < pages.expires_s else outcome
    finally:
        kept = client.finish_load(load, outcome)
    return load.blocks if kept and outcome is LoadOutcome.LOADED else 0


def store(client: Client, keys: Sequence[bytes], rows: Sequence[Row], parent: bytes) -> list[bool]:
    """Keep a chain that follows `parent`; for each page whether it is kept now, or was already.
    Where room ends the rest is not tried: it would be worth nothing."""
    step = _step(client)
    kept: list[bool] = []
    for begin in range(0, len(keys), step):
        some = keys[begin : begin + step]
        before = keys[begin - 1] if begin else parent
        kept += _give(client, client.store_prepare(some, parent=before), rows[begin:])
        if not all(kept):
            break
    return kept + [False] * (len(keys) - len(kept))


def _give(client: Client, ticket: StoreTicket, rows: Sequence[Row]) -> list[bool]:
    """Copy into the pages that were granted and seal them."""
    granted, sealed = ticket.granted, False
    if granted:
        outcome = StoreOutcome.ABANDONED
        try:
            pages = ticket.pages()
            arena = client.arena(pages)
            chosen = [rows[number] for number in granted]
            if arena is not None and client.now_s() < pages.expires_s:
                whole = arena.copy_in(_pieces(pages.offsets, chosen), move)
                if whole and client.now_s() < pages.expires_s:
                    outcome = StoreOutcome.SEALED
        finally:
            sealed = client.finish_store(ticket, outcome) == len(granted)
    there = (StoreSlot.EXISTS, StoreSlot.BUSY)
    mine = frozenset(granted) if sealed else frozenset()
    return [slot in there or number in mine for number, slot in enumerate(ticket.slots)]


def _pieces(offsets: Sequence[int], rows: Sequence[Row]) -> Iterator[Piece]:
    for offset, row in zip(offsets, rows, strict=True):
        at = offset
        for address, nbytes in row:
            yield at, address, nbytes
            at += nbytes


def _step(client: Client) -> int:
    return max(1, PART_BYTES // client.spaces[0].page_bytes)
