"""What goes from the scheduler to the workers in a step, and back. Plain, picklable data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onggi.connectors.vllm.hybrid.kinds import Kind
from onggi.outcomes import Pages

Block = Any
"""A block as the copier of its kind calls it: a number, or where layers of several groups make up
a page, a tuple of one number for each group."""


@dataclass(frozen=True)
class Space:
    """Pages of one kind of one worker, and what tells them from others."""

    fingerprint: bytes
    page_bytes: int
    block_tokens: int


@dataclass(frozen=True)
class Told:
    """What one worker tells the scheduler about itself, once: its kinds of pages and a space for
    each. unit: tokens that every hit is a multiple of. plain: one group, and it keeps all blocks.
    reason: why it takes no part."""

    kinds: tuple[Kind, ...] = ()
    spaces: tuple[Space, ...] = ()
    unit: int = 0
    plain: bool = True
    reason: str = ""


@dataclass(frozen=True)
class LoadJob:
    """Copy pages into blocks of a request.

    rows[rank]: the arena pages, one for each of the first blocks; block_ids beyond them have no
    page and are reported as failed. wanted: False for a request that has ended meanwhile: nothing
    is copied, only reported. kind: of these pages. also: pages of the request's other kinds; then
    all of it comes or none counts.
    """

    number: int
    request_id: str
    block_ids: tuple[Block, ...]
    rows: tuple[Pages, ...]
    asynchronous: bool
    wanted: bool = True
    kind: int = 0
    also: tuple[LoadJob, ...] = ()


@dataclass(frozen=True)
class SaveJob:
    """Copy full blocks of a request into the arena. keys[0] follows `parent`."""

    number: int
    request_id: str
    parent: bytes
    keys: tuple[bytes, ...]
    block_ids: tuple[Block, ...]
    kind: int = 0


@dataclass
class StepPlan:
    """One step's work for the workers.

    fenced: save jobs whose blocks are about to be reused: finish or drop them. fence_all: that
    list may not be whole, so fence every save under way. delayed: requests whose blocks wait for
    their saves; report each once its saves are over. step: its number, to be reported if it is not
    0, so that the scheduler learns how long it took.
    """

    loads: list[LoadJob] = field(default_factory=list)
    saves: list[SaveJob] = field(default_factory=list)
    fenced: set[int] = field(default_factory=set)
    delayed: set[str] = field(default_factory=set)
    fence_all: bool = False
    step: int = 0


@dataclass
class Report:
    """What workers did since the last report.

    loaded: job -> its leading blocks that are right (the fewest over the ranks), and how many ranks
    say so. seconds: job -> the longest time that a rank took for it. step: see StepPlan; 0: none.
    saves_over: job -> ranks that are done with it. kept: job -> its leading blocks that the agent
    has now (the fewest over the ranks). saves_dropped: jobs that were not even tried; the request
    may offer them again. told: rank -> what it is, in its first report.
    """

    loaded: dict[int, tuple[int, int]] = field(default_factory=dict)
    saves_over: dict[int, int] = field(default_factory=dict)
    saves_dropped: set[int] = field(default_factory=set)
    seconds: dict[int, float] = field(default_factory=dict)
    step: int = 0
    kept: dict[int, int] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)

    def merged(self, other: Report) -> Report:
        """Both ranks' reports as one."""
        loaded = dict(self.loaded)
        for number, (blocks, ranks) in other.loaded.items():
            fewest, said = loaded.get(number, (blocks, 0))
            loaded[number] = min(blocks, fewest), ranks + said
        over = dict(self.saves_over)
        for number, ranks in other.saves_over.items():
            over[number] = over.get(number, 0) + ranks
        seconds = dict(self.seconds)
        for number, took_s in other.seconds.items():
            seconds[number] = max(took_s, seconds.get(number, 0.0))
        kept = dict(self.kept)
        for number, blocks in other.kept.items():
            kept[number] = min(blocks, kept.get(number, blocks))
        return Report(
            loaded,
            over,
            self.saves_dropped | other.saves_dropped,
            seconds,
            max(self.step, other.step),
            kept,
            self.told | other.told,
        )

    def __bool__(self) -> bool:
        done = self.loaded or self.saves_over or self.saves_dropped
        return bool(done or self.step or self.told)
