"""Figures of the moment, as one flat object for STATS, metrics and heartbeats alike."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Any, Final

from onggi_core.engine.state import State
from onggi_core.index.weight import weight

CLIENTS_MAX: Final = 64
"""Named in a snapshot: an engine has a client a rank and one for its scheduler."""

NAME_CHARS_MAX: Final = 64
"""Of a client's own name for itself; it may send 64 KiB of it."""

OWNER_BYTES: Final = 4
"""Of a page, in its region."""


def snapshot(state: State) -> dict[str, Any]:
    """Sizes in bytes; counters since the start of this life."""
    facts = state.facts
    return {
        "epoch": facts.epoch.hex(),
        "mode": state.mode.name.capitalize(),
        "extent_bytes": facts.extent_bytes,
        "segment_bytes": facts.segment_bytes,
        "arena_bytes": facts.extents * facts.extent_bytes,
        "arena_ready_bytes": state.extents_ready * facts.extent_bytes,
        "arena_budget_bytes": state.extents.budget * facts.extent_bytes,
        "arena_coming_bytes": len(state.extents.coming) * facts.extent_bytes,
        "arena_leaving_bytes": len(state.extents.leaving) * facts.extent_bytes,
        "disk_bytes": facts.segments * facts.segment_bytes,
        "disk_budget_bytes": state.segments.budget * facts.segment_bytes,
        "disk_leaving_bytes": len(state.segments.leaving) * facts.segment_bytes,
        "host_used_bytes": state.host.used_bytes,
        "disk_used_bytes": state.disk.used_bytes,
        "host_pages": state.host.used_pages,
        "disk_pages": state.disk.used_pages,
        "blocks": len(state.blocks),
        "index_bytes": _index_bytes(state),
        "shown_blocks": state.board.shown_blocks,
        "unshown_blocks": state.board.unshown_blocks,
        "sessions": len(state.sessions),
        "clients": _clients(state),
        "spaces": len(state.spaces),
        "fingerprints": [space.spec.fingerprint.hex() for space in state.spaces.values()],
        "open_stores": len(state.stores),
        "room_bytes": state.room_bytes,
        "open_loads": len(state.loads),
        "waiting_loads": len(state.waiting_loads),
        "writes_in_flight": len(state.writes),
        "reads_in_flight": len(state.reads),
        "disk_breaker": state.breaker.state.name.lower(),
        "disk_breaker_opened": state.breaker.opened,
        "dead_pages": len(state.host.dead.blocks) + len(state.disk.dead.blocks),
        "dirty_blocks": len(state.dirty),
        "pending_blocks": len(state.dirty)
        + sum(len(write.blocks) for write in state.writes.values()),
        **dataclasses.asdict(state.counters),
    }


def _index_bytes(state: State) -> int:
    """Of the heap: what is known of all blocks, and who may go. Without the board, which lies in
    the arena's file."""
    tiers = (state.host, state.disk)
    columns = [part for tier in tiers for part in (tier.pages, tier.ranking)]
    owners = OWNER_BYTES * sum(tier.used_pages for tier in tiers)
    return weight(state.blocks, *state.blocks.tables, *columns, state.sights) + owners


def _clients(state: State) -> list[dict[str, Any]]:
    greeted = (session for session in state.sessions.values() if session.spaces)
    return [
        {"engine": session.engine[:NAME_CHARS_MAX], "spaces": len(session.spaces)}
        for session in islice(greeted, CLIENTS_MAX)
    ]
