"""Saves of several kinds of blocks, from the step that fills them until all ranks have read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onggi.connectors.vllm.events import Events
from onggi.connectors.vllm.failures import Failures
from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.connectors.vllm.hybrid.pins import Pins
from onggi.connectors.vllm.hybrid.tracked import Tracked
from onggi.connectors.vllm.metadata import Report, SaveJob, StepPlan
from onggi_core.identity import ROOT

PIECE_BLOCKS_MIN: Final = 8
"""Blocks of a window kind that are stored as one chain, at least. Nobody needs more of them than a
window, and a chain lives as long as its last block: in short ones each window ages by itself."""


class Saves:
    def __init__(
        self,
        kinds: Sequence[Kind],
        ranks: int,
        failures: Sequence[Failures],
        pins: Pins,
        events: Events,
    ) -> None:
        self._kinds = kinds
        self._ranks = ranks
        self._failures = failures
        self._pins = pins
        self._events = events
        self._jobs: dict[int, SaveJob] = {}
        self._ranks_over: dict[int, int] = {}
        self._next = 1

    def plan(self, plan: StepPlan, output: Any, tracked: Mapping[str, Tracked]) -> None:
        """Save jobs for the blocks that this step fills, of requests whose tokens are known."""
        if not self._pins.bound:
            return
        for request_id, scheduled in output.num_scheduled_tokens.items():
            one = tracked.get(request_id)
            if one is None or one.frozen or one.request.num_tokens <= one.doubted:
                continue
            computed = one.request.num_computed_tokens + scheduled
            known = min(computed, len(one.request.all_token_ids))
            if all(
                known // k.block_tokens <= s for k, s in zip(self._kinds, one.saved, strict=True)
            ):
                continue
            table = output.kv_connector_block_state.get_block_ids(request_id)
            if table is None:
                continue
            for number in range(len(self._kinds)):
                self._add(plan, one, number, known, table)

    def _add(
        self, plan: StepPlan, one: Tracked, number: int, tokens: int, table: Sequence[Sequence[int]]
    ) -> None:
        kind = self._kinds[number]
        keys = one.keys[number].upto(tokens // kind.block_tokens)
        columns = [table[group] for group in kind.groups]
        full = min(len(keys), *(len(column) for column in columns))
        first = full
        while first > one.saved[number] and not self._given_up(columns, first - 1):
            first -= 1
        one.saved[number] = max(full, one.saved[number])
        for begin, end in _pieces(kind, first, full):
            blocks = tuple(zip(*(column[begin:end] for column in columns), strict=True))
            parent = keys[begin - 1] if begin and kind.needs_all else ROOT
            job = SaveJob(
                self._next,
                one.request.request_id,
                parent,
                tuple(keys[begin:end]),
                blocks,
                kind=number,
            )
            self._next += 1
            self._pins.hold(job.number, [block for row in blocks for block in row])
            self._jobs[job.number] = job
            self._events.planned(job, one.request, kind, begin)
            plan.saves.append(job)

    def _given_up(self, columns: Sequence[Sequence[int]], block: int) -> bool:
        return any(column[block] == self._pins.nobody for column in columns)

    def reported(self, report: Report) -> None:
        for number, ranks in report.saves_over.items():
            job = self._jobs.get(number)
            if job is None:
                continue
            over = self._ranks_over[number] = self._ranks_over.get(number, 0) + ranks
            if over >= self._ranks:
                del self._jobs[number], self._ranks_over[number]
                self._failures[job.kind].forget(job.keys)
                self._pins.let_go(number)


def _pieces(kind: Kind, first: int, end: int) -> Iterator[tuple[int, int]]:
    """What to store as one chain: all of it, or of a window's blocks as many as it sees."""
    if kind.needs_all:
        if first < end:
            yield first, end
        return
    size = max(kind.most_needed(), PIECE_BLOCKS_MIN)
    while first < end:
        upto = min(end, first - first % size + size)
        yield first, upto
        first = upto
