"""Loads that a request has taken up, from the promise to the workers' report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onggi.client import Client
from onggi.clock import Clock
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.metadata import LoadJob
from onggi.connectors.vllm.offers import Judge
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.tracked import Loading, Offer, Tracked
from onggi.outcomes import NO_LOAD, Load
from onggi_core.wire.requests import LoadOutcome

OVERDUE_S: Final = 60.0
"""After the end of its lease a load that no worker has reported is forgotten: the pin is gone, and
vLLM has dropped the step that should have told."""


class Loads:
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
        self._faults = faults
        self._client = client
        self._ranks = ranks
        self._block_tokens = block_tokens
        self._failures = failures
        self._judge = judge
        self._tally = tally
        self._now_s = clock
        self._loading: dict[int, Loading] = {}
        self._waiting: dict[str, int] = {}
        """Request -> its asynchronous load; vLLM lets it have one at a time."""
        self._broken: list[tuple[str, tuple[int, ...], bool]] = []
        self._next = 1

    @property
    def unconfirmed(self) -> bool:
        """A step that may have computed on a failed load has not been reported yet. Until it is,
        no block is worth saving: vLLM plans a step ahead of the last one's results."""
        return any(x.sent and x.pending is None for x in self._loading.values())

    def take_up(
        self, tracked: Tracked, offer: Offer, block_ids: Sequence[int], blocks: int
    ) -> None:
        """A promise was accepted for `blocks` blocks; block_ids: the request's whole table."""
        number, self._next = self._next, self._next + 1
        request_id = tracked.request.request_id
        loading = Loading(
            number,
            request_id,
            offer.local,
            tuple(block_ids[offer.local : offer.local + blocks]),
            tracked.keys.upto(offer.local + blocks)[offer.local :],
            offer.load,
            offer.pending,
            offer.asked_s,
            offer.waited_s,
        )
        self._loading[number] = loading
        if offer.pending is not None:
            self._waiting[request_id] = number

    def fail(self, request_id: str, block_ids: Sequence[int], *, asynchronous: bool) -> None:
        """Have the workers report these blocks as failed, in the next step."""
        self._broken.append((request_id, tuple(block_ids), asynchronous))

    def due(self) -> list[LoadJob]:
        """Jobs for this step: the synchronous loads just taken up, and those whose blocks have
        come from disk, or will not come any more."""
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

    def reported(
        self,
        number: int,
        blocks: int,
        ranks: int,
        copied_s: float,
        tracked: Mapping[str, Tracked],
    ) -> None:
        """`ranks` more workers have loaded the first `blocks` blocks of a job, and no more, in
        `copied_s` or less. The pin goes when all have spoken."""
        loading = self._loading.get(number)
        if loading is None:
            return
        loading.fewest = min(blocks, loading.fewest) if loading.said else blocks
        loading.said += ranks
        loading.copied_s = max(loading.copied_s, copied_s)
        if loading.said >= self._ranks:
            self._ended(loading, loading.fewest, tracked)

    def _ended(self, loading: Loading, blocks: int, tracked: Mapping[str, Tracked]) -> None:
        number = loading.number
        del self._loading[number]
        if self._waiting.get(loading.request_id) == number:
            del self._waiting[loading.request_id]
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

    def received(self, request_id: str, tracked: Mapping[str, Tracked]) -> None:
        """vLLM heard that a request's asynchronous load is over. One that ended before its job was
        wanted has no report of its own."""
        number = self._waiting.get(request_id)
        if number is not None:
            self._ended(self._loading[number], 0, tracked)

    def orphan(self, request_id: str) -> bool:
        """The request has ended. True: an asynchronous load of it still has to be reported."""
        number = self._waiting.get(request_id)
        if number is None:
            return False
        loading = self._loading[number]
        loading.dead = True
        if not loading.sent and loading.pending is not None:
            loading.pending.cancel()
        return True

    def _forget_if_overdue(self, loading: Loading) -> None:
        if loading.load.blocks and loading.load.expires_s + OVERDUE_S < self._now_s():
            del self._loading[loading.number]
            self._waiting.pop(loading.request_id, None)
            self._client.finish_load(loading.load, LoadOutcome.FAILED)
