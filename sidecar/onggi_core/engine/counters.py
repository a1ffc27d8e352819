"""What the engine counts. Plain numbers that only grow, since the start of this life."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    greeted_sessions: int = 0
    """Clients that said who they are, those included that have gone."""
    lookup_requests: int = 0
    """Prompts asked about: PREFETCH of a session that sends it, else LOAD_PREPARE."""
    lookup_blocks: int = 0
    hit_host_blocks: int = 0
    """Blocks that an engine loaded and uses, found in the host tier."""
    hit_disk_blocks: int = 0
    """The same, read from disk for it."""
    miss_blocks: int = 0
    """Blocks of those prompts that were in no tier, or did not come in time."""
    tokens_saved: int = 0
    """Tokens in the blocks an engine loaded and uses: what it did not compute."""
    stored_blocks: int = 0
    stored_bytes: int = 0
    loaded_bytes: int = 0
    refused_blocks: int = 0
    """Blocks a store found no room for."""
    unadmitted_host_blocks: int = 0
    """Blocks of a store that the policy did not let into a full host tier."""
    unadmitted_disk_blocks: int = 0
    """Blocks that it did not let into a full disk tier: the host tier has them as long as it can.
    One that is offered again counts again."""
    written_bytes: int = 0
    read_bytes: int = 0
    prefetched_blocks: int = 0
    """Pages brought in from disk on a hint. What becomes of them:"""
    prefetch_useful_blocks: int = 0
    """They were there when a load used them."""
    prefetch_late_blocks: int = 0
    """A load came while they were still on their way."""
    prefetch_useless_blocks: int = 0
    """Evicted before any load used them."""
    evicted_host_blocks: int = 0
    evicted_disk_blocks: int = 0
    discarded_blocks: int = 0
    """Blocks that clients said are worth nothing. Their pages count as evicted when they go."""
    unwritten_blocks: int = 0
    """Evicted from the host tier before they had reached the disk tier."""
    unseen_prompts: int = 0
    """Prompts that no ghost cache saw: too many waited for an idle moment."""
    watermark_blocks: int = 0
    """Of those evicted from the host tier, the ones given up ahead of any store, to keep room."""
    inherited_blocks: int = 0
    """Taken over in the arena from an agent that died."""
    refused_extents: int = 0
    """Times an extent that the budget allows could not be touched."""
    errors: dict[str, int] = field(default_factory=dict)
    """Faults by kind, from a fixed set of kinds: see `fault`."""

    def fault(self, kind: str) -> None:
        """kind: corrupt, read_fault, write_fault, no_space, lease_ended, late_load,
        not_inherited."""
        self.errors[kind] = self.errors.get(kind, 0) + 1
