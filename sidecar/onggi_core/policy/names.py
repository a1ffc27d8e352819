"""The policies by name."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from onggi_core.policy.choosers import (
    Arc,
    Chooser,
    Hazard,
    LeastRecent,
    S3Fifo,
    SecondSight,
    Worth,
    WorthOnSecondSight,
)
from onggi_core.policy.reuse import Reuse


class PolicyName(str, enum.Enum):
    ADAPTIVE = "adaptive"
    LRU = "lru"
    ARC = "arc"
    S3_FIFO = "s3-fifo"
    SECOND_SIGHT = "second-sight"
    HAZARD = "hazard"
    WORTH = "worth"
    WORTH_SECOND_SIGHT = "worth-second-sight"


_MAKERS: Final[dict[PolicyName, Callable[[Reuse], Chooser]]] = {
    PolicyName.WORTH: Worth,
    PolicyName.WORTH_SECOND_SIGHT: WorthOnSecondSight,
    PolicyName.HAZARD: Hazard,
    PolicyName.LRU: lambda _: LeastRecent(),
    PolicyName.ARC: lambda _: Arc(),
    PolicyName.S3_FIFO: lambda _: S3Fifo(),
    PolicyName.SECOND_SIGHT: lambda _: SecondSight(),
}

FIXED: Final = tuple(_MAKERS)
"""All but adaptive, which follows one of these; the first is what it begins with."""


def chooser_of(name: PolicyName, reuse: Reuse) -> Chooser:
    """A chooser of a fixed policy. reuse: where those that learn look up what was learned."""
    return _MAKERS[name](reuse)
