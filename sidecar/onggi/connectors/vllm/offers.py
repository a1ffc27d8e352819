"""Promises: what of a hit is worth waiting for, and pinned or on its way before it is promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onggi.client import Client
from onggi.connectors.vllm.lateness import Lateness
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.tracked import Offer
from onggi.connectors.vllm.worth import Tier, Worth
from onggi.outcomes import NO_LOAD, Load
from onggi_core.wire.requests import LoadOutcome

WAIT_FOR_AT_LEAST: Final = 1 / 8
"""Part of a hit that must lie on disk for a request to wait for it. Waiting for less would hold up
what is here for what is soon computed."""

LATE_FROM: Final = 0.9
"""Of the longest wait: a load that brought less than promised after so long was cut off by it."""


class Judge:
    """What loading has cost so far, and what follows for the next hit. worth None: always load."""

    def __init__(self, block_tokens: int, tally: Tally, disk_wait_s: float, *, weigh: bool) -> None:
        self.worth = Worth(block_tokens) if weigh else None
        self.disk_wait_s = disk_wait_s
        self._block_tokens = block_tokens
        self._lateness = Lateness()
        self._tally = tally

    def take(self, here: int, coming: int, now_s: float, *, again: bool) -> int:
        """Leading blocks to load of a hit with `coming` blocks on disk behind `here` others.
        again: the same was asked and counted before."""
        if coming < max(1, (here + coming) * WAIT_FOR_AT_LEAST):
            coming = 0
        have = here + coming
        take = self.worth.take(here, coming, now_s) if self.worth is not None else have
        awaited = take <= here or self._lateness.may_wait(now_s)
        if not again:
            self._tally.add("declined_tokens", (have - take) * self._block_tokens)
            if not awaited:
                self._tally.add("unawaited_tokens", (take - here) * self._block_tokens)
        return take if awaited else here

    def came(self, promised: int, load: Load, waited_s: float, now_s: float) -> None:
        """A load that was waited for is over."""
        late = load.blocks < promised and waited_s >= LATE_FROM * self.disk_wait_s
        self._tally.add("late_loads", late)
        self._lateness.came(now_s, late=late)

    def used(self, host: int, disk: int, waited_s: float, copied_s: float) -> None:
        """Blocks of a load are in use, by the tier they came from."""
        blocks = host + disk
        if self.worth is None or not blocks:
            return
        if disk:
            self.worth.loaded(Tier.DISK, disk, waited_s + copied_s * disk / blocks)
        else:
            self.worth.loaded(Tier.HOST, host, copied_s)
        compute_s = self.worth.compute_s(blocks)
        if compute_s is not None and waited_s + copied_s > compute_s:
            self._tally.add("costly_tokens", blocks * self._block_tokens)


def make_offer(
    client: Client,
    judge: Judge,
    wanted: Sequence[bytes],
    question: tuple[int, int],
    now_s: float,
    *,
    again: bool,
) -> Offer | None:
    """A promise for the blocks `wanted`, which the agent has: now pinned, or coming from disk in
    time. question: the leading blocks that the engine has, and the most that may be promised."""
    here = client.load_prepare(wanted).wait(client.deadline_s)
    take = judge.take(here.blocks, len(wanted) - here.blocks, now_s, again=again)
    if take > here.blocks:
        pending = client.load_prepare(wanted[:take], wait_s=judge.disk_wait_s)
        client.finish_load(here, LoadOutcome.UNUSED)
        return Offer(*question, take, NO_LOAD, pending, here.blocks, now_s)
    if take:
        return Offer(*question, here.blocks, here, None, here.blocks, now_s)
    client.finish_load(here, LoadOutcome.UNUSED)
    return None
