"""The scheduler side for models with several kinds of blocks: one client, one chain of keys for
each.

It promises what all kinds can restore, and nothing else. Every load is asynchronous: the engine
takes no failure of single blocks here, only of whole requests that wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onggi.client import Client
from onggi.clock import Clock, monotonic
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.hybrid.loads import Loads
from onggi.connectors.vllm.hybrid.offers import Offers
from onggi.connectors.vllm.hybrid.pins import Pins
from onggi.connectors.vllm.hybrid.saves import Saves
from onggi.connectors.vllm.hybrid.tracked import Offer, Tracked
from onggi.connectors.vllm.keys import RequestKeys
from onggi.connectors.vllm.metadata import Report, StepPlan
from onggi.connectors.vllm.offers import Judge
from onggi.connectors.vllm.requests import Requests
from onggi.connectors.vllm.scheduler import MISS, MISS_KEPT_S, Answer
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.tracked import NEVER_ASKED
from onggi_core.identity import Extra
from onggi_core.wire.frame import KEYS_MAX
from onggi_core.wire.requests import LoadOutcome


class HybridScheduler(Requests[Tracked, Loads]):
    """Decides for all ranks. Called on the engine's thread only."""

    def __init__(
        self,
        clients: Sequence[Client],
        kinds: Sequence[Kind],
        unit: int,
        *,
        disk_wait_s: float,
        ranks: int,
        faults: Faults,
        tally: Tally,
        pins: Pins,
        events: Events,
        clock: Clock = monotonic,
        weigh: bool = True,
        looks_ahead: bool = False,
    ) -> None:
        """clients: one for each kind, with a space for each rank. unit: tokens that every hit is a
        multiple of. weigh: decline what is measured to be dearer to load than to compute.
        looks_ahead: the last unit of a hit is computed (drafts.py)."""
        judge = Judge(unit, tally, disk_wait_s, weigh=weigh)
        super().__init__(judge, faults=faults, tally=tally, clock=clock, events=events)
        self._clients = clients
        self._kinds = kinds
        self._unit = unit
        self._pins = pins
        self._failures = [Failures() for _ in kinds]
        self._offers = Offers(
            clients, kinds, unit, self._failures, judge, events, clock, looks_ahead=looks_ahead
        )
        self._loads = Loads(kinds, unit, ranks, self._failures, judge, tally, clock)
        self._saves = Saves(kinds, ranks, self._failures, pins, events)
        for kind, client in zip(kinds, clients, strict=True):
            events.follow(kind, client)

    # ---- what is there

    def arrived(self, request: Any) -> None:
        """A new request: have brought what lies on disk of the layers that need all of it."""
        tracked = self._track(request)
        if tracked is None or request.skip_reading_prefix_cache:
            return
        most = self._most(request)
        for client, kind, keys in zip(self._clients, self._kinds, tracked.keys, strict=True):
            if not kind.needs_all or not most:
                continue
            prompt = keys.upto(most // kind.block_tokens)
            if client.misses(prompt, noted=True):
                continue
            asked = client.prefetch_begin(prompt)
            if asked is not None:
                tracked.asked.append((client, asked))
        self._tally.add("lookups", bool(most))

    def matched(self, request: Any, computed_tokens: int) -> Answer:
        """Tokens beyond `computed_tokens` that can be loaded, and that they must be waited for."""
        tracked = self._track(request)
        if tracked is not None:
            self._asked(tracked, computed_tokens)
        if tracked is None or request.skip_reading_prefix_cache:
            return MISS
        if tracked.frozen and computed_tokens == 0:
            self._tracked.pop(request.request_id)
            return self.matched(request, 0)
        question = computed_tokens, self._most(request)
        if tracked.missed[:2] == question and self._now_s() < tracked.missed[2]:
            return MISS
        offer = self._standing(tracked)
        if offer is None or not offer.answers(*question, self._now_s()):
            self._withdraw(tracked)
            offer = None if tracked.frozen else self._timed_offer(tracked, *question)
            tracked.offer = offer
            if offer is None:
                tracked.missed = (*question, self._now_s() + MISS_KEPT_S)
        return MISS if offer is None else (offer.tokens - offer.local, True)

    def _standing(self, tracked: Tracked) -> Offer | None:
        """The promise, unless a part of it fell short while the request was in the queue."""
        offer = tracked.offer
        if offer is None or offer.poll() is not False:
            return offer
        for part in offer.parts:
            if part.poll() is False and part.load is not None:
                self._failures[part.kind].note(part.keys[part.load.blocks], self._now_s())
        self._withdraw(tracked)
        return None

    def _timed_offer(self, tracked: Tracked, local: int, most: int) -> Offer | None:
        began_s = self._now_s()
        for client, asked in tracked.asked:
            client.prefetch_end(asked)
        tracked.asked = []
        offer = self._offers.make(tracked, local, most)
        self._tally.add("lookup_seconds", self._now_s() - began_s)
        return offer

    def _withdraw(self, tracked: Tracked) -> None:
        offer, tracked.offer = tracked.offer, None
        if offer is not None:
            offer.finish(LoadOutcome.UNUSED)
            self._loads.unwanted.note(part.pending for part in offer.parts)

    def admitted(self, request: Any, table: Sequence[Sequence[int]], external_tokens: int) -> None:
        """The request has its blocks, in each group; `external_tokens` of it are ours to fill. When
        the load is over this comes a second time, with 0."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None:
            return
        offer = tracked.offer
        if offer is None or external_tokens == 0:
            self._withdraw(tracked)
            return
        if offer.local + external_tokens != offer.tokens:
            raise ValueError(f"{external_tokens} of {offer.tokens - offer.local} tokens were taken")
        self._loads.take_up(request.request_id, offer, table)
        tracked.offer, tracked.reached = None, offer.tokens
        tracked.sources = (offer.tokens - offer.local - offer.disk_tokens, offer.disk_tokens)
        for part in offer.parts:
            tracked.saved[part.kind] = part.first + len(part.keys)

    def broken(self, request: Any, table: Sequence[Sequence[int]]) -> None:  # noqa: ARG002
        """A promise was accepted and could not be taken up: report it as failed."""
        tracked = self._tracked.get(request.request_id)
        if tracked is not None:
            self._withdraw(tracked)
            tracked.frozen = True  # asked once more, it starts anew; until then nothing is saved
        self._loads.fail(request.request_id)

    # ---- the step

    def plan(self, output: Any) -> StepPlan:
        """This step's loads and saves. Whatever goes wrong, loads that were promised go out."""
        plan = StepPlan(loads=self._loads.due())
        try:
            for request_id in output.preempted_req_ids or ():
                tracked = self._tracked.get(request_id)
                if tracked is not None:
                    tracked.missed = NEVER_ASKED
            for client in self._clients:
                client.tidy()
            self._pace_of(plan, output)
            self._doubt(output)
            if all(client.attached for client in self._clients):
                self._saves.plan(plan, output, self._tracked)
        except Exception as error:  # noqa: BLE001 - see above
            self._faults.note("plan", error)
        return plan

    def _saved(self, report: Report) -> None:
        self._saves.reported(report)

    @property
    def holds_blocks(self) -> bool:
        """Saves still read blocks that the engine would have free."""
        return self._pins.any

    # ---- the end

    def finished(self, request: Any) -> bool:
        """The request ended. False: nobody waits for its saves, whose blocks are pinned."""
        tracked = self._forget(request.request_id)
        if tracked is not None:
            self._withdraw(tracked)
            for _, asked in tracked.asked:
                asked.session.channel.give_up(asked.call)
            self._loads.orphan(request.request_id)
        return False

    def close(self) -> None:
        super().close()
        for client in self._clients:
            client.close()

    # ---- what we know of a request

    def _remember(self, request: Any, adapter: Sequence[Extra]) -> Tracked:
        chains: dict[int, RequestKeys] = {}
        for kind in self._kinds:
            if kind.block_tokens not in chains:
                chains[kind.block_tokens] = RequestKeys(
                    request, kind.block_tokens, adapter=adapter, life=self._life
                )
        keys = tuple(chains[kind.block_tokens] for kind in self._kinds)
        return Tracked(request, keys, [0] * len(keys))

    def _most(self, request: Any) -> int:
        """Tokens that may be promised: whole units, never the last one, and no more than one
        question may name of the smallest blocks."""
        nameable = KEYS_MAX * min(kind.block_tokens for kind in self._kinds)
        most = min(max(0, request.num_tokens - 1), nameable)
        return int(most - most % self._unit)
