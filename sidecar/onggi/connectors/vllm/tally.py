"""Counters of one side, added to from any thread and taken away once a step."""

from __future__ import annotations

import threading
from typing import Final

COUNTERS: Final = {
    "loaded_tokens_host": "Prompt tokens loaded from the agent's host tier instead of computed.",
    "loaded_tokens_disk": "Prompt tokens loaded from the agent's disk tier instead of computed.",
    "costly_tokens": "Loaded tokens that would have been cheaper to compute, by what they took.",
    "declined_tokens": "Tokens the agent had that were computed, loading being dearer.",
    "unawaited_tokens": "Tokens on disk that were computed, the disk's loads being late.",
    "late_loads": "Loads from disk that had not come whole when their wait was over.",
    "failed_load_blocks": "Blocks promised and not loaded; their tokens were computed instead.",
    "loaded_bytes": "Bytes copied from the arena into the engine's blocks, all ranks.",
    "load_seconds": "Time engine or mover spent on copies into blocks, all ranks.",
    "saved_blocks": "Blocks stored in the agent, all ranks.",
    "saved_bytes": "Bytes copied from the engine's blocks into the arena, all ranks.",
    "save_seconds": "Time spent saving, beside the engine's steps, all ranks.",
    "existing_blocks": "Blocks offered that the agent had already.",
    "refused_blocks": "Blocks offered that the agent had no room for, or that no agent took.",
    "lookups": "Requests that were looked up, on the agent's board or by asking it.",
    "lookup_seconds": "Time the scheduler spent waiting for the agent.",
    "faults": "Errors in the connector's own hooks, each counted as a miss.",
}
"""Every counter and what it counts: also the metrics of the engine's own endpoint."""


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}

    def add(self, counter: str, amount: float) -> None:
        if amount:
            assert counter in COUNTERS
            with self._lock:
                self._counts[counter] = self._counts.get(counter, 0) + amount

    def take(self) -> dict[str, float]:
        """The counts since the last call; empty if there are none."""
        if not self._counts:
            return {}
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts
