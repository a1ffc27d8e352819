"""Which query may see which key, by their positions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch

from onggi_library.attention.piece import Span


class Sight(enum.Enum):
    """What all queries of a span see of a span of keys."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True)
class Visibility:
    """Position rules.

    causal: a query sees keys up to its own position. window: of those it sees the last `window`,
    itself among them, as models with sliding windows count. sinks: the first `sinks` positions
    are seen whatever the window.
    """

    causal: bool = True
    window: int | None = None
    sinks: int = 0

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}; 1 or more tokens, or None for no window")
        if self.sinks < 0:
            raise ValueError(f"sinks is {self.sinks}; 0 or more tokens")

    def sight(self, queries: Span, keys: Span) -> Sight:
        """Whether a mask is needed for these, or everything or nothing is seen."""
        first, last = queries.start, queries.end - 1
        if self.causal and keys.start > last:
            return Sight.NONE
        if self._outside(first, keys):
            return Sight.NONE
        whole_past = not self.causal or keys.end - 1 <= first
        return Sight.ALL if whole_past and self._inside(last, keys) else Sight.SOME

    def mask(self, queries: Span, keys: Span, device: Any) -> Any:
        """bool [queries, keys], True where a query sees a key."""
        query = torch.arange(queries.start, queries.end, device=device).unsqueeze(1)
        key = torch.arange(keys.start, keys.end, device=device).unsqueeze(0)
        seen = torch.ones(queries.length, keys.length, dtype=torch.bool, device=device)
        if self.causal:
            seen &= key <= query
        if self.window is not None:
            seen &= (key > query - self.window) | (key < self.sinks)
        return seen

    def _outside(self, first_query: int, keys: Span) -> bool:
        """Whether even the earliest query, which looks back farthest, has lost all keys."""
        if self.window is None or keys.start < self.sinks:
            return False
        return keys.end - 1 <= first_query - self.window

    def _inside(self, last_query: int, keys: Span) -> bool:
        """Whether even the last query, which looks back least far, sees all keys."""
        if self.window is None or keys.end <= self.sinks:
            return True
        return keys.start > last_query - self.window
