"""Who gets how much of the device: sinks, recent tokens, two pieces in flight, pieces that stay.

A pure function of the budget. What does not fit is made smaller in a fixed order, and a budget for
which the smallest is too much is refused with the number that would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onggi import checks
from onggi_core.quantity import spell_bytes

IN_FLIGHT: Final = 2
"""Pieces on the device at a time that do not stay: one is computed, one is on its way."""
PIECE_TOKENS_MAX: Final = 8192
"""Longer pieces are moved no faster,"""
PIECE_BYTES_MAX: Final = 32 * 1024 * 1024
"""nor larger ones, over all sequences; one block at least. The one that is on its way and the one
that the agent is told of are 64 MiB then, whatever the budget."""
IN_FLIGHT_SHARE: Final = 4
"""One in so many bytes of the budget at most is for pieces in flight, where that is more than the
smallest."""
RUN_TOKENS: Final = 512
"""Tokens beyond the recent ones that are gathered before they go down together,"""
RUN_BYTES: Final = 1024 * 1024
"""or so many bytes of each sequence, where that is more: what goes down together lies together on
disk, and is read by one call."""


@dataclass(frozen=True)
class Wanted:
    """What a caller asks for, in tokens and bytes. Raises TypeError and ValueError for what means
    nothing."""

    device_bytes: int
    layers: int
    block_tokens: int
    sinks: int
    recent: int

    def __post_init__(self) -> None:
        for name, least in (("layers", 1), ("block_tokens", 1), ("sinks", 0), ("recent", 0)):
            if (value := checks.whole(name, getattr(self, name))) < least:
                raise ValueError(f"{name} is {value}; use a whole number, {least} or more")


@dataclass(frozen=True)
class Share:
    """The outcome, in blocks; hot in places of a piece each."""

    sinks: int
    recent: int
    run: int
    piece: int
    hot: int

    @property
    def tail(self) -> int:
        """Blocks that the newest tokens of a layer may take."""
        return self.recent + self.run


def share(wanted: Wanted, batch: int, row_bytes: int) -> Share:
    """How the device's budget is shared out. row_bytes: of one token in one layer of one sequence.
    Raises ValueError naming the smallest budget that is enough."""
    block = row_bytes * wanted.block_tokens * batch
    sinks = _blocks(wanted.sinks, wanted.block_tokens)
    least = (wanted.layers * (sinks + 1) + IN_FLIGHT) * block
    if wanted.device_bytes < least:
        raise ValueError(
            f"device_bytes is {wanted.device_bytes} ({spell_bytes(wanted.device_bytes)}); "
            f"{wanted.layers} layers of {batch} sequences with blocks of {wanted.block_tokens} "
            f"tokens and {sinks} blocks of sinks need at least {least} ({spell_bytes(least)}): "
            "use that, fewer sinks, or smaller blocks"
        )
    most = min(_blocks(PIECE_TOKENS_MAX, wanted.block_tokens), max(1, PIECE_BYTES_MAX // block))
    spare = wanted.device_bytes - least
    piece = 1 + min(most - 1, spare // IN_FLIGHT_SHARE // (IN_FLIGHT * block))
    spare -= IN_FLIGHT * (piece - 1) * block
    a_layer = spare // (wanted.layers * block)
    run = max(_blocks(RUN_TOKENS, wanted.block_tokens), RUN_BYTES * batch // block)
    run_more = min(run - 1, a_layer // 4)
    recent = min(_blocks(wanted.recent, wanted.block_tokens), a_layer - run_more)
    spare -= wanted.layers * (run_more + recent) * block
    return Share(sinks, recent, 1 + run_more, piece, spare // (piece * block))


def _blocks(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)
