"""Saves: which full blocks to hand to the workers, and who must wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onggi.client import Client
from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.metadata import Report, SaveJob, StepPlan
from onggi.connectors.vllm.tracked import Tracked
from onggi_core.identity import ROOT


class Saves:
    def __init__(self, block_tokens: int, ranks: int, failures: Failures, events: Events) -> None:
        self.kind = Kind((0,), block_tokens)
        self._events = events
        self._failures = failures
        self._block_tokens = block_tokens
        self._ranks = ranks
        self._owner: dict[int, str] = {}
        """Job -> its request; a job that nobody waits for any more is not in it."""
        self._keys: dict[int, tuple[bytes, ...]] = {}
        """Of all jobs that are not over: what they save is no longer what failed, whoever waits."""
        self._ranks_over: dict[int, int] = {}
        self._fenced: set[int] = set()
        self._delayed: set[str] = set()
        self._next = 1

    def plan(
        self, plan: StepPlan, output: Any, tracked: Mapping[str, Tracked], client: Client
    ) -> None:
        """Save jobs for the blocks that this step fills, of requests whose tokens are known.

        With more than one rank not in a step that loads: a rank whose own load is right cannot
        tell that another's has failed, and would keep what it computed from that. The blocks are
        offered in a later step.
        """
        if self._ranks > 1 and any(not job.asynchronous for job in plan.loads):
            return
        due = []
        for request_id, scheduled in output.num_scheduled_tokens.items():
            one = tracked.get(request_id)
            if one is None or one.frozen or one.request.num_tokens <= one.doubted:
                continue
            computed = one.request.num_computed_tokens + scheduled
            full = min(computed, len(one.request.all_token_ids)) // self._block_tokens
            if full > one.saved:
                due.append((one, full))
        if not due or not client.attached:
            return  # `saved` has not moved: offered again once there is an agent
        for one, full in due:
            self._add(plan, output, one, full)

    def _add(self, plan: StepPlan, output: Any, one: Tracked, full: int) -> None:
        request_id = one.request.request_id
        table = output.kv_connector_block_state.get_block_ids(request_id)
        if table is None:
            return
        keys, first = one.keys.upto(full), one.saved
        full = min(len(keys), len(table[0]))
        if full <= first:
            return
        number, self._next = self._next, self._next + 1
        parent = keys[first - 1] if first else ROOT
        blocks = tuple(table[0][first:full])
        mine = tuple(keys[first:full])
        job = SaveJob(number, request_id, parent, mine, blocks)
        plan.saves.append(job)
        self._events.planned(job, one.request, self.kind, first)
        self._keys[number] = mine
        one.saved = full
        one.saves[number] = first
        self._owner[number] = request_id

    def hand_over(self, plan: StepPlan) -> None:
        """Fences and delays since the last plan go with this one."""
        plan.fenced, self._fenced = self._fenced, set()
        plan.delayed, self._delayed = self._delayed, set()

    def fence(self, one: Tracked) -> None:
        """The request's blocks are about to be reused: its saves end or are dropped first, and
        nobody waits for them."""
        self._fenced |= set(one.saves)
        self._disown(one)

    def delay(self, one: Tracked) -> bool:
        """The request has ended. True: saves still read its blocks; the workers will say when."""
        if not one.saves:
            return False
        self._delayed.add(one.request.request_id)
        self._disown(one)
        return True

    def reported(self, report: Report, tracked: Mapping[str, Tracked]) -> None:
        for number, ranks in report.saves_over.items():
            if number in self._keys:
                self._ranks_over[number] = self._ranks_over.get(number, 0) + ranks
                if self._ranks_over[number] >= self._ranks:
                    self._failures.forget(self._keys[number])
                    self._over(number, tracked)
        for number in report.saves_dropped:
            one = tracked.get(self._owner.get(number, ""))
            if one is not None:
                one.saved = min(one.saved, one.saves.get(number, one.saved))
            self._over(number, tracked)

    def _over(self, number: int, tracked: Mapping[str, Tracked]) -> None:
        self._ranks_over.pop(number, None)
        self._keys.pop(number, None)
        one = tracked.get(self._owner.pop(number, ""))
        if one is not None:
            one.saves.pop(number, None)

    def _disown(self, one: Tracked) -> None:
        for number in one.saves:
            self._owner.pop(number, None)
        one.saves = {}
