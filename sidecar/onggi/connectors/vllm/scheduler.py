"""The scheduler side: which blocks are there, which to load, which to save.

It alone talks to the agent about existence. What it promises is pinned, or on its way from disk
with a deadline, and every promise ends: used, failed, or given back. Loads that were taken up are
in loads.py, saves in saves.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from onggi.client import Client
from onggi.clock import Clock, monotonic
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.guard import Faults
from onggi.connectors.vllm.keys import RequestKeys
from onggi.connectors.vllm.loads import Loads
from onggi.connectors.vllm.metadata import Report, StepPlan
from onggi.connectors.vllm.offers import Judge, make_offer
from onggi.connectors.vllm.requests import Requests
from onggi.connectors.vllm.saves import Saves
from onggi.connectors.vllm.tally import Tally
from onggi.connectors.vllm.tracked import NEVER_ASKED, Offer, Tracked
from onggi.outcomes import NOTHING
from onggi_core.identity import Extra
from onggi_core.wire.frame import KEYS_MAX
from onggi_core.wire.requests import LoadOutcome

MISS_KEPT_S: Final = 0.5
"""How long a request that found nothing is not asked about again: vLLM asks each step while it
cannot admit a request, and each would cost a round trip."""

ANSWER_KEPT_S: Final = 1.0
"""How long the answer to a new request's question holds if it was not "all of it". One that queued
for longer asks again: what it shares with those before it has been stored meanwhile."""

Answer = tuple[int, bool]
MISS: Final[Answer] = (0, False)


class Scheduler(Requests[Tracked, Loads]):
    """Decides for all ranks. Called on the engine's thread only."""

    def __init__(
        self,
        client: Client,
        block_tokens: int,
        *,
        disk_wait_s: float,
        ranks: int,
        faults: Faults,
        tally: Tally,
        clock: Clock = monotonic,
        weigh: bool = True,
        events: Events | None = None,
        looks_ahead: bool = False,
    ) -> None:
        """weigh: decline what is measured to be dearer to load than to compute. looks_ahead: the
        last block of a hit is computed (drafts.py)."""
        super().__init__(
            Judge(block_tokens, tally, disk_wait_s, weigh=weigh),
            faults=faults,
            tally=tally,
            clock=clock,
            events=Events() if events is None else events,
        )
        self._client = client
        self._block_tokens = block_tokens
        self._left_out = int(looks_ahead)
        self._failures = Failures()
        self._loads = Loads(
            client, block_tokens, ranks, self._failures, self._judge, faults, tally, clock
        )
        self._saves = Saves(block_tokens, ranks, self._failures, self.events)
        self.events.follow(self._saves.kind, client)

    # ---- what is there

    def arrived(self, request: Any) -> None:
        """A new request: ask about its prompt now, and start to bring what lies on disk."""
        tracked = self._track(request)
        if tracked is None or request.skip_reading_prefix_cache:
            return
        keys = tracked.keys.upto(self._most(request))
        if keys:
            if not self._client.misses(keys, noted=True):
                tracked.asked = self._client.prefetch_begin(keys)
            self._tally.add("lookups", 1)

    def matched(self, request: Any, computed_tokens: int) -> Answer:
        """Tokens beyond `computed_tokens` that can be loaded, and whether they must be waited for.

        Asked again while the request cannot be admitted: the same question gets the same answer
        from the same pin. Never promises the last token, which must be computed.
        """
        tracked = self._track(request)
        if tracked is not None:
            self._asked(tracked, computed_tokens)
        if tracked is None or request.skip_reading_prefix_cache:
            return MISS
        if tracked.frozen and computed_tokens == 0:
            self._tracked.pop(request.request_id)
            return self.matched(request, 0)
        local, most = computed_tokens // self._block_tokens, self._most(request)
        if tracked.missed[:2] == (local, most) and self._now_s() < tracked.missed[2]:
            return MISS
        if tracked.offer is not None:
            tracked.offer = self._settled(tracked)
        offer = tracked.offer
        if offer is None or not self._stands(offer, local, most):
            if offer is not None:
                self._withdraw(tracked)
            offer = None if tracked.frozen else self._timed_offer(tracked, local, most)
            tracked.offer = offer
            if offer is None:
                tracked.missed = (local, most, self._now_s() + MISS_KEPT_S)
        if offer is None:
            return MISS
        return offer.blocks * self._block_tokens, offer.pending is not None

    def _stands(self, offer: Offer, local: int, most: int) -> bool:
        """Whether it is the answer to this question, and the agent that gave it is there."""
        there = offer.pending is not None or self._client.holds(offer.load.rows[0])
        return there and offer.answers(local, most, self._now_s())

    def _settled(self, tracked: Tracked) -> Offer | None:
        """The standing promise. One whose blocks have come from disk while the request was still
        in the queue is as good as any other pin by now, and as perishable."""
        offer = tracked.offer
        load = offer.pending.poll() if offer is not None and offer.pending is not None else None
        if offer is None or load is None:
            return offer
        now_s = self._now_s()
        waited_s = now_s - offer.asked_s
        self._judge.came(offer.blocks, load, waited_s, now_s)
        if load.blocks:
            here = load.blocks - load.from_disk
            return replace(
                offer, blocks=load.blocks, load=load, pending=None, here=here, waited_s=waited_s
            )
        (key,) = tracked.keys.upto(offer.local + 1)[offer.local :]
        self._failures.note(key, now_s)
        return None

    def _timed_offer(self, tracked: Tracked, local: int, most: int) -> Offer | None:
        began_s = self._now_s()
        keys = tracked.keys.upto(most)
        keys = keys[: self._failures.first(keys, began_s)]
        tracked.known = tracked.saved = self._known(tracked, keys, local)
        offer, end = None, tracked.known - self._left_out
        if end > local:
            wanted = keys[local:end]
            offer = make_offer(
                self._client,
                self._judge,
                wanted,
                (local, most),
                self._now_s(),
                again=tracked.missed[:2] == (local, most),
            )
        self._tally.add("lookup_seconds", self._now_s() - began_s)
        return offer

    def _known(self, tracked: Tracked, keys: Sequence[bytes], local: int) -> int:
        """How many leading blocks the agent has, in host memory or on disk."""
        asked, tracked.asked = tracked.asked, None
        if asked is not None:
            looked = self._client.prefetch_end(asked)
            if looked.pending >= len(keys) or self._now_s() - asked.sent_s < ANSWER_KEPT_S:
                self.events.found(tracked.request, self._saves.kind, 0, keys, looked)
                return min(looked.pending, len(keys))
        if len(keys) <= local:
            return 0
        looked = NOTHING if self._client.misses(keys) else self._client.lookup(keys)
        self.events.found(tracked.request, self._saves.kind, 0, keys, looked)
        self.events.missing(self._saves.kind, keys[looked.pending :])
        return looked.pending

    def _withdraw(self, tracked: Tracked) -> None:
        offer, tracked.offer = tracked.offer, None
        if offer is not None:
            self._client.finish_load(offer.load, LoadOutcome.UNUSED)
            if offer.pending is not None:
                offer.pending.cancel()
                self._loads.unwanted.note([offer.pending])

    def admitted(self, request: Any, table: Sequence[Sequence[int]], external_tokens: int) -> None:
        """The request has its blocks, in the only group; `external_tokens` of them are ours to
        fill. After an asynchronous load this comes a second time, with 0."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None:
            return
        offer, blocks = tracked.offer, external_tokens // self._block_tokens
        if offer is None or blocks == 0:
            self._withdraw(tracked)
            return
        tracked.offer = None
        tracked.saved = offer.local + blocks
        tracked.reached = tracked.saved * self._block_tokens
        tracked.sources = offer.sources(blocks, self._block_tokens)
        self._loads.take_up(tracked, offer, table[0], blocks)

    # ---- the step

    def plan(self, output: Any) -> StepPlan:
        """This step's loads, saves and fences. output: vLLM's SchedulerOutput.

        Whatever goes wrong in here, the loads that were promised go out: a promise that is not
        kept and not reported either would have the engine read blocks without their bytes.
        """
        unconfirmed = self._loads.unconfirmed
        plan = StepPlan(loads=self._loads.due())
        try:
            for request_id in output.preempted_req_ids or ():
                tracked = self._tracked.get(request_id)
                if tracked is not None:
                    self._saves.fence(tracked)
                    tracked.missed = NEVER_ASKED  # what it had stored may be there, or dropped
            self._client.tidy()
            self._pace_of(plan, output)
            self._doubt(output)
            if not unconfirmed:
                self._saves.plan(plan, output, self._tracked, self._client)
        except Exception as error:  # noqa: BLE001 - see above
            self._faults.note("plan", error)
            plan.fence_all = True
        self._saves.hand_over(plan)
        return plan

    def broken(self, request: Any, table: Sequence[Sequence[int]]) -> None:
        """A promise was accepted and could not be taken up: report its blocks as failed."""
        tracked = self._tracked.get(request.request_id)
        waits = tracked is not None and tracked.offer is not None and tracked.offer.pending
        self._loads.fail(request.request_id, table[0], asynchronous=bool(waits))

    def _saved(self, report: Report) -> None:
        self._saves.reported(report, self._tracked)

    # ---- the end

    def finished(self, request: Any) -> bool:
        """The request ended. True: its blocks must wait until its saves have read them."""
        tracked = self._forget(request.request_id)
        if tracked is None:
            return False
        self._withdraw(tracked)
        if tracked.asked is not None:
            tracked.asked.session.channel.give_up(tracked.asked.call)
        if self._loads.orphan(request.request_id):
            self._saves.fence(tracked)  # vLLM frees the blocks when it hears of the load
            return False
        return self._saves.delay(tracked)

    def close(self) -> None:
        super().close()
        self._client.close()

    # ---- what we know of a request

    def _remember(self, request: Any, adapter: Sequence[Extra]) -> Tracked:
        keys = RequestKeys(request, self._block_tokens, adapter=adapter, life=self._life)
        return Tracked(request, keys)

    def _most(self, request: Any) -> int:
        """Blocks that may be promised: whole ones, never the last token, and no more than one
        question may name. What a longer prompt has behind those is computed."""
        return int(min(max(0, (request.num_tokens - 1) // self._block_tokens), KEYS_MAX))
