"""Whole chains at once: reserve, copy and seal, or pin, copy and unpin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onggi.outcomes import Stored
from onggi_core.wire.requests import LoadOutcome, StoreOutcome

if TYPE_CHECKING:
    from onggi.client import Client

BATCH_BYTES: Final = 256 * 1024 * 1024
"""Bytes of one reservation in a store, and between two looks at the lease in a load: some 50 ms of
copying, far inside any lease."""


def store(
    client: Client, keys: Sequence[bytes], pages: Sequence[Any], parent: bytes, space: int
) -> Stored:
    """See Client.store."""
    if len(keys) != len(pages):
        raise ValueError(f"pages has {len(pages)} entries for {len(keys)} keys; use one each")
    stored = existing = 0
    step = max(1, BATCH_BYTES // client.spaces[space].page_bytes)
    for begin in range(0, len(keys), step):
        some = keys[begin : begin + step]
        ticket = client.store_prepare(some, parent=parent, space=space)
        parent = some[-1]
        existing += ticket.existing
        if not ticket.granted:
            continue
        sources = [pages[begin + number] for number in ticket.granted]
        outcome = StoreOutcome.ABANDONED
        try:
            if client.copy_in(ticket.pages(), sources):
                outcome = StoreOutcome.SEALED
        finally:
            sealed = client.finish_store(ticket, outcome)
        stored += sealed
    return Stored(stored, existing, len(keys) - stored - existing)


def load(
    client: Client, keys: Sequence[bytes], pages: Sequence[Any], wait_s: float, space: int
) -> int:
    """See Client.load."""
    if len(pages) < len(keys):
        raise ValueError(f"pages has {len(pages)} entries for {len(keys)} keys; use one each")
    load = client.load_prepare(keys, wait_s=wait_s).wait(wait_s + client.deadline_s)
    if not load.blocks:
        return 0
    row, done = load.pages(space), 0
    step = max(1, BATCH_BYTES // row.page_bytes)
    try:
        while done < load.blocks:
            some = row.part(done, step)
            if not client.copy_out(some, pages[done : done + len(some.offsets)]):
                break
            done += len(some.offsets)
    finally:
        outcome = LoadOutcome.LOADED if done else LoadOutcome.FAILED
        client.finish_load(load, outcome, blocks=done)
    return done
