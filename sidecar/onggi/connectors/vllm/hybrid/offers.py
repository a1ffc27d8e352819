"""Promises of what all kinds can restore, pinned or on their way before they are made."""

from __future__ import annotations

from collections.abc import Sequence

from onggi.client import Client
from onggi.clock import Clock
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.hybrid.hits import longest_hit, span
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.hybrid.tracked import Offer, Part, Tracked
from onggi.connectors.vllm.offers import Judge
from onggi.outcomes import NOTHING, Looked
from onggi_core.wire.requests import LoadOutcome


class Offers:
    def __init__(
        self,
        clients: Sequence[Client],
        kinds: Sequence[Kind],
        unit: int,
        failures: Sequence[Failures],
        judge: Judge,
        events: Events,
        clock: Clock,
        *,
        looks_ahead: bool = False,
    ) -> None:
        self._left_out = unit if looks_ahead else 0
        self._clients = clients
        self._kinds = kinds
        self._unit = unit
        self._failures = failures
        self._judge = judge
        self._events = events
        self._now_s = clock

    def make(self, tracked: Tracked, local: int, most: int) -> Offer | None:
        """For a request of which the engine has `local` tokens, up to `most`. Notes what need not
        be stored: what the agent has."""
        seen: dict[tuple[int, int, int], Looked] = {}
        tracked.saved = [0] * len(self._kinds)

        def look(kind: int, first: int, end: int) -> Looked:
            question = (kind, first, end)
            if question not in seen:
                seen[question] = self._look(tracked, *question)
            return seen[question]

        def pending(kind: int, first: int, end: int) -> int:
            return look(kind, first, end).pending

        end = longest_hit(self._kinds, self._unit, local, most, pending)
        if self._left_out:
            end = longest_hit(self._kinds, self._unit, local, end - self._left_out, pending)
        if end <= local:
            return None
        here = longest_hit(self._kinds, self._unit, local, end, lambda *q: look(*q).ready)
        units, ready = (end - local) // self._unit, (here - local) // self._unit
        again = tracked.missed[:2] == (local, most)
        take = self._judge.take(ready, units - ready, self._now_s(), again=again)
        if not take:
            return None
        end = local + take * self._unit
        return self._pin(tracked, local, most, end, min(here, end))

    def _look(self, tracked: Tracked, number: int, first: int, end: int) -> Looked:
        """How many of a kind's blocks from `first` on are there. Of a chain that is needed as a
        whole those before it too, though the engine has them: what follows a hole is not found."""
        begin = 0 if self._kinds[number].needs_all else first
        keys = tracked.keys[number].upto(end)[begin:]
        keys = keys[: self._failures[number].first(keys, self._now_s())]
        client = self._clients[number]
        unknown = not keys or (not begin and client.misses(keys))
        looked = NOTHING if unknown else client.lookup(keys)
        kind = self._kinds[number]
        self._events.found(tracked.request, kind, begin, keys, looked)
        self._events.missing(kind, keys[looked.pending :])
        if kind.needs_all:
            tracked.saved[number] = looked.pending
        skipped = first - begin
        return Looked(max(0, looked.ready - skipped), max(0, looked.pending - skipped))

    def _pin(self, tracked: Tracked, local: int, most: int, end: int, here: int) -> Offer | None:
        """All parts of a hit, of which what follows `here` lies on disk. None: some are not there
        any more."""
        now_s, waits = self._now_s(), here < end
        wait_s = self._judge.disk_wait_s if waits else 0.0
        parts = []
        for number, (kind, client) in enumerate(zip(self._kinds, self._clients, strict=True)):
            first, last = span(kind, local, end)
            keys = tracked.keys[number].upto(last)[first:]
            if keys:
                pending = client.load_prepare(keys, wait_s=wait_s)
                parts.append(Part(number, first, keys, client, pending))
        offer = Offer(local, most, end, parts, waits, end - here, now_s)
        if waits:
            return offer
        for part in parts:
            part.load = part.pending.wait(part.client.deadline_s)
        if offer.poll():
            return offer
        offer.finish(LoadOutcome.UNUSED)
        return None
