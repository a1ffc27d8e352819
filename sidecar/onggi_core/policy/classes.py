"""Classes of blocks: how often a block was asked for, in a few buckets."""

from __future__ import annotations

from typing import Final

COUNT_MAX: Final = 15
"""Where the count of a block stops: past it, one more says nothing new."""

_STEPS: Final = (0, 1, 2, 3, 5, 9)
"""The lowest count of each class. Most of what tells blocks apart is in the first few: a block
asked for again once is often a prompt that grows, a block asked for ten times a system prompt."""

CLASSES: Final = len(_STEPS)

CLASS_OF: Final = tuple(
    max(number for number, low in enumerate(_STEPS) if low <= count)
    for count in range(COUNT_MAX + 1)
)
"""The class of each count."""

PROVEN: Final = 1
"""From this count on a block has been asked for again at least once."""
