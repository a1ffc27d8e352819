"""A run of keys and values that stand side by side in a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """Positions `start` up to, and without, `start + length`, in tokens."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class Piece:
    """Keys [batch, kv heads, length, head size] and values [.., value size] of one span.

    Keys are as attention uses them: after rotary embedding, if there is one. Both are on the
    queries' device and of their dtype.
    """

    span: Span
    keys: Any
    values: Any
