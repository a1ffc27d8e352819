"""Loads that a request has taken up, from the promise to the workers' report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onggi.client import Client
from onggi.clock import Clock
from onggi.connectors.vllm.awaited import OVERDUE_S, AwaitedLoads
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.metadata import LoadJob
from onggi.connectors.vllm.offers import Judge
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.tracked import Loading, Offer, Tracked
from onggi.outcomes import NO_LOAD, Load
from onggi_core.wire.requests import LoadOutcome


class Loads(AwaitedLoads[Loading, Tracked]):
    def __init__(
        self,
        client: Client,
        block_tokens: int,
        ranks: int,
        failures: Failures,
        judge: Judge,
        faults: Faults,
        tally: Tally,
        clock: Clock,
    ) -> None:
        super().__init__(ranks)
        self._faults = faults
        self._client = client
        self._block_tokens = block_tokens
        self._failures = failures
        self._judge = judge
        self._tally = tally
        self._now_s = clock
        self._broken: list[tuple[str, tuple[int, ...], bool]] = []

    @property
    def unconfirmed(self) -> bool:
        """A step that may have computed on a failed load has not been reported yet. Until it is,
        no block is worth saving: vLLM plans a step ahead of the last one's results."""
        loading = self._loading
        return bool(loading) and any(x.sent and x.pending is None for x in loading.values())

    def take_up(
        self, tracked: Tracked, offer: Offer, block_ids: Sequence[int], blocks: int
    ) -> None:
        """A promise was accepted for `blocks` blocks; block_ids: the request's whole table."""
        loading = Loading(
            self._number(),
            tracked.request.request_id,
            offer.local,
            tuple(block_ids[offer.local : offer.local + blocks]),
            tracked.keys.upto(offer.local + blocks)[offer.local :],
            offer.load,
            offer.pending,
            offer.asked_s,
            offer.waited_s,
        )
        self._add(loading, waits=offer.pending is not None)

    def fail(self, request_id: str, block_ids: Sequence[int], *, asynchronous: bool) -> None:
        """Have the workers report these blocks as failed, in the next step."""
        self._broken.append((request_id, tuple(block_ids), asynchronous))

    def due(self) -> list[LoadJob]:
        """Jobs for this step: the synchronous loads just taken up, and those whose blocks have
        come from disk, or will not come any more."""
        if not (self._broken or self._loading):
            return []
        jobs = [
            LoadJob(0, request_id, block_ids, (), asynchronous)
            for request_id, block_ids, asynchronous in self._broken
        ]
        self._broken = []
        for loading in tuple(self._loading.values()):
            if loading.sent:
                self._forget_if_overdue(loading)
                continue
            load = self._poll(loading)
            if load is None:
                continue
            loading.load, loading.sent = load, True
            count = len(loading.block_ids)
            jobs.append(
                LoadJob(
                    loading.number,
                    loading.request_id,
                    loading.block_ids,
                    tuple(row.sent().part(0, count) for row in load.rows),
                    asynchronous=loading.pending is not None,
                    wanted=not loading.dead,
                )
            )
        return jobs

    def _poll(self, loading: Loading) -> Load | None:
        if loading.pending is None:
            return loading.load
        try:
            load = loading.pending.poll()
        except Exception as error:  # noqa: BLE001 - the request waits for this answer
            self._faults.note("load", error)
            return NO_LOAD
        if load is not None and not loading.dead:
            now_s = self._now_s()
            loading.waited_s = now_s - loading.asked_s
            self._judge.came(len(loading.block_ids), load, loading.waited_s, now_s)
        return load

    def _ended(self, loading: Loading, tracked: Mapping[str, Tracked]) -> None:
        blocks = loading.fewest
        if loading.dead:
            self._client.finish_load(loading.load, LoadOutcome.UNUSED)
            return
        outcome = LoadOutcome.LOADED if blocks else LoadOutcome.FAILED
        self._client.finish_load(loading.load, outcome, blocks=blocks)
        disk = min(loading.load.from_disk, blocks)
        self._judge.used(blocks - disk, disk, loading.waited_s, loading.copied_s)
        self._tally.add("loaded_tokens_disk", disk * self._block_tokens)
        self._tally.add("loaded_tokens_host", (blocks - disk) * self._block_tokens)
        if blocks < len(loading.block_ids):
            self._failures.note(loading.keys[blocks], self._now_s())
            owner = tracked.get(loading.request_id)
            if owner is not None:
                owner.saved = min(owner.saved, loading.first + blocks)

    def orphan(self, request_id: str) -> bool:
        """The request has ended. True: an asynchronous load of it still has to be reported."""
        number = self._waiting.get(request_id)
        if number is None:
            return False
        loading = self._loading[number]
        loading.dead = True
        if not loading.sent and loading.pending is not None:
            loading.pending.cancel()
            self.unwanted.note([loading.pending])
        return True

    def _forget_if_overdue(self, loading: Loading) -> None:
        if loading.load.blocks and loading.load.expires_s + OVERDUE_S < self._now_s():
            self._drop(loading)
            self._client.finish_load(loading.load, LoadOutcome.FAILED)
