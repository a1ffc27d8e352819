"""What a context says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from onggi_library.rounding import Rounding


@dataclass
class Flow:
    """What came by since the context was made. Sums in bytes and seconds."""

    brought_bytes: int = 0
    """From the tiers to the device."""
    stayed_bytes: int = 0
    """Read where they were, on the device."""
    busy_s: float = 0.0
    """In which something was being brought."""
    waited_s: float = 0.0
    """In which computing waited for it."""
    skipped: int = 0
    """Pieces that were not fetched, since they were shown to hold too little."""
    share_max: float = 0.0
    """The greatest part of a query's attention that was left out, by proof."""
    error_max: float = 0.0
    """No element of any output is farther from the exact one, by proof and but for rounding."""

    @property
    def hidden(self) -> float | None:
        """The part of the bringing that computing hid, 0 to 1; None: nothing was brought."""
        if self.busy_s <= 0.0:
            return None
        return max(0.0, 1.0 - self.waited_s / self.busy_s)


@dataclass(frozen=True)
class Report:
    """Of the moment."""

    device_budget_bytes: int
    sureness: float | None
    """See AttentionMap.sureness."""
    flow: Flow
    sequences: int = 0
    tokens: int = 0
    device_bytes: int = 0
    device_bytes_peak: int = 0
    tier_bytes: int = 0
    hot_pieces: int = 0
    hot_places: int = 0
    metadata_bytes: int = 0
    """What the context knows of its blocks and pieces."""
    bounds_bytes: int = 0
    """Of bounds, which an epsilon needs: on the device, and no part of its budget."""
    queue_bytes: int = 0
    """Asked for ahead of its use: pieces on their way, and the one that the agent was told of."""
    queue_bytes_peak: int = 0
    rounding: Rounding | None = None
    """What int8 in the tiers did to keys and values; None: they are exact there."""


@dataclass(frozen=True)
class Tiers:
    """Of the moment, as the agent says, whomever else it serves."""

    host_bytes: int
    disk_bytes: int
    index_bytes: int
    """What the agent knows of all blocks."""
    read_bytes: int
    """From disk to host memory, since the agent began."""
