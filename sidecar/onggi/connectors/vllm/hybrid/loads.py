"""Loads of several kinds that a request has taken up: all of it comes, or none counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from onggi.clock import Clock
from onggi.connectors.vllm.awaited import OVERDUE_S, AwaitedLoads
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.hybrid.tracked import Loading, Offer, Tracked
from onggi.connectors.vllm.metadata import Block, LoadJob
from onggi.connectors.vllm.offers import Judge
from onggi.connectors.vllm.tally import Tally
from onggi_core.wire.requests import LoadOutcome


class Loads(AwaitedLoads[Loading, Tracked]):
    def __init__(
        self,
        kinds: Sequence[Kind],
        unit: int,
        ranks: int,
        failures: Sequence[Failures],
        judge: Judge,
        tally: Tally,
        clock: Clock,
    ) -> None:
        super().__init__(ranks)
        self._kinds = kinds
        self._unit = unit
        self._failures = failures
        self._judge = judge
        self._tally = tally
        self._now_s = clock
        self._broken: list[str] = []

    def take_up(self, request_id: str, offer: Offer, table: Sequence[Sequence[int]]) -> None:
        """A promise was accepted; table: the request's blocks in each of the engine's groups.
        Raises ValueError for a table that lacks some of them."""
        blocks = []
        for part in offer.parts:
            columns = [table[group] for group in self._kinds[part.kind].groups]
            rows = tuple(zip(*columns, strict=False))[part.first : part.first + len(part.keys)]
            if len(rows) != len(part.keys):
                raise ValueError(f"{request_id} has {len(rows)} blocks for {len(part.keys)}")
            blocks.append(rows)
        self._add(Loading(self._number(), request_id, offer, blocks), waits=True)

    def fail(self, request_id: str) -> None:
        """Have the workers report this request's load as failed, in the next step."""
        self._broken.append(request_id)

    def due(self) -> list[LoadJob]:
        """Jobs for this step: loads whose blocks are pinned, and those that will not come whole."""
        jobs = [
            LoadJob(0, request_id, _NOWHERE, (), asynchronous=True) for request_id in self._broken
        ]
        self._broken = []
        for loading in tuple(self._loading.values()):
            if loading.sent:
                self._forget_if_overdue(loading)
                continue
            whole = loading.offer.poll()
            if whole is None and not loading.dead:
                continue
            loading.sent = True
            if loading.offer.waits and not loading.dead:
                self._came(loading.offer)
            jobs.append(_job(loading, whole=bool(whole)))
        return jobs

    def _came(self, offer: Offer) -> None:
        now_s = self._now_s()
        offer.waited_s = now_s - offer.asked_s
        for part in offer.parts:
            if part.load is not None:
                self._judge.came(len(part.keys), part.load, offer.waited_s, now_s)

    def orphan(self, request_id: str) -> bool:
        """The request has ended. True: a load of it still has to be reported."""
        number = self._waiting.get(request_id)
        if number is not None:
            self._loading[number].dead = True
        return number is not None

    def _ended(self, loading: Loading, tracked: Mapping[str, Tracked]) -> None:
        offer = loading.offer
        if loading.dead:
            self._finish(offer, LoadOutcome.UNUSED)
        elif loading.right:
            self._finish(offer, LoadOutcome.LOADED)
            self._used(loading)
        else:
            self._failed(offer, tracked.get(loading.request_id))

    def _used(self, loading: Loading) -> None:
        offer = loading.offer
        tokens, disk = offer.tokens - offer.local, offer.disk_tokens
        self._tally.add("loaded_tokens_disk", disk)
        self._tally.add("loaded_tokens_host", tokens - disk)
        host_units, disk_units = (tokens - disk) // self._unit, disk // self._unit
        self._judge.used(host_units, disk_units, offer.waited_s, loading.copied_s)

    def _failed(self, offer: Offer, owner: Tracked | None) -> None:
        """What fell short is known if the agent said so; after a failed copy it is any of them."""
        short = [part for part in offer.parts if part.poll() is False]
        for part in short or offer.parts:
            got = part.load.blocks if part.load is not None and short else 0
            self._failures[part.kind].note(part.keys[got], self._now_s())
        self._finish(offer, LoadOutcome.FAILED)
        if owner is not None:
            for part in offer.parts:
                owner.saved[part.kind] = min(owner.saved[part.kind], part.first)

    def _forget_if_overdue(self, loading: Loading) -> None:
        expires_s = loading.offer.expires_s
        if expires_s and expires_s + OVERDUE_S < self._now_s():
            self._drop(loading)
            self._finish(loading.offer, LoadOutcome.FAILED)

    def _finish(self, offer: Offer, outcome: LoadOutcome) -> None:
        offer.finish(outcome)
        self.unwanted.note(part.pending for part in offer.parts)


_NOWHERE: Final[tuple[Block, ...]] = ((),)
"""Of a load that could not even be begun: one block, without a place."""


def _job(loading: Loading, *, whole: bool) -> LoadJob:
    """The workers' part of it, one job with the other kinds' along."""
    jobs = [
        LoadJob(
            loading.number,
            loading.request_id,
            blocks,
            tuple(row.sent() for row in part.load.rows) if whole and part.load is not None else (),
            asynchronous=True,
            wanted=not loading.dead,
            kind=part.kind,
        )
        for part, blocks in zip(loading.offer.parts, loading.blocks, strict=True)
    ]
    return replace(jobs[0], also=tuple(jobs[1:]))
