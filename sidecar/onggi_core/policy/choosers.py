"""Choosers: which class of leaves gives up its head. A policy is one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Standing(Protocol):
    """What a chooser may know of the ranking it chooses for."""

    now: int
    """The latest use there was."""
    proven: int
    """Blocks that were asked for again at least once (classes.PROVEN)."""

    def __len__(self) -> int: ...


class Chooser(Protocol):
    def choose(self, heads: Sequence[int], standing: Standing) -> int:
        """The class whose head goes. heads: the one used longest ago of each class, in order of
        the classes, as ranking.entry(use, block); ranking.EMPTY for a class without leaves. At
        least one is not empty. A pure question: asked again it answers the same."""
        ...


class LeastRecent:
    """Leaf-first LRU: the leaf used longest ago, whatever its class."""

    def choose(self, heads: Sequence[int], standing: Standing) -> int:  # noqa: ARG002
        return heads.index(min(heads))
