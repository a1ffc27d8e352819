"""What is known of one agent: what it holds, what it was told, what memory is worth to it.

Plain calls, no I/O. Reports are numbered within one life (epoch) of an agent, and lives follow one
another: a report that was overtaken on its way tells of a past in which the agent may have held
less, and is not believed. Which of two lives is the later one nobody can see, but only an agent
that lives can repeat what it was just told. So a life that is not known is believed with the
report that repeats the mark which the one before was answered with.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from onggi_core.heartbeat import Heartbeat, TierBytes

HALF_LIFE_S: Final = 300.0
"""What was asked for so long ago counts half: a lull of a minute is no reason to move memory."""

CURVE_WEIGHT: Final = 0.2
"""Of the newest curve in the mean of curves over the same sizes: some five reports' worth."""

EPOCHS_KEPT: Final = 4
"""Lives that are over, whose reports may still be on their way."""


class Report(Enum):
    """What became of a report."""

    TAKEN = 1
    OVERTAKEN = 2
    """A later one came first."""
    DOUBTED = 3
    """Of another life than the one known; `mark` is what the next one has to repeat."""
    TOO_MANY = 4
    """There are as many agents as can be kept account of."""


@dataclass(slots=True)
class Demand:
    """How much is asked for, of late."""

    asked_tokens: int = 0
    at_s: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def see(self, asked_tokens: int, now_s: float) -> None:
        """A counter's state; the first one only tells where it begins."""
        if self.at_s:
            past_s = max(0.0, now_s - self.at_s)
            kept = 0.5 ** (past_s / HALF_LIFE_S)
            self.tokens = self.tokens * kept + max(0, asked_tokens - self.asked_tokens)
            self.seconds = self.seconds * kept + past_s
        self.asked_tokens, self.at_s = asked_tokens, now_s

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Account:
    """One agent. Times are monotonic; `began_s` is when its present life was first heard of."""

    pod_uid: str
    node: str
    heard_s: float
    began_s: float
    epoch: str = ""
    past_epochs: tuple[str, ...] = ()
    doubted: str = ""
    """The life that a report was last doubted of."""
    mark: str = ""
    """What that was answered with."""
    sequence: int = 0
    held: TierBytes | None = None
    used: TierBytes = field(default_factory=TierBytes)
    ready_bytes: int = 0
    target_bytes: int | None = None
    granted_bytes: int | None = None
    answered_bytes: int | None = None
    backed_bytes: int | None = None
    """What its pod's request has room for; None where that is no bound."""
    moved_s: float | None = None
    demand: Demand = field(default_factory=Demand)
    curve: tuple[tuple[int, float], ...] = ()
    pending_blocks: int = 0
    draining: bool = False

    def hear(self, beat: Heartbeat, *, now_s: float) -> Report:
        """Take a report in. What was answered to the one before is contained in what it shows."""
        if beat.epoch == self.epoch and 0 < self.sequence >= beat.sequence:
            return Report.OVERTAKEN
        if self.epoch and beat.epoch != self.epoch:
            if beat.confirms is None and beat.epoch in self.past_epochs:
                return Report.OVERTAKEN
            if beat.confirms is not None and not self._is_confirmed(beat, now_s):
                return Report.DOUBTED
        if beat.epoch != self.epoch:
            self._begin(beat.epoch, now_s)
        self.sequence, self.heard_s = beat.sequence, now_s
        self.node = beat.node
        self.held = beat.held or beat.capacity
        self.used = beat.used
        self.ready_bytes = beat.arena_ready_bytes
        self.answered_bytes = None
        self.demand.see(beat.demand.asked_tokens, now_s)
        self._see_curve(beat.demand.curve)
        self.pending_blocks, self.draining = beat.pending_blocks, beat.draining
        return Report.TAKEN

    def answer(self) -> int | None:
        """What the agent is told with this answer; from now on it may hold that. A grant that its
        pod does not request yet waits; what it holds already it may keep."""
        told = self.granted_bytes
        if told is not None and self.backed_bytes is not None:
            held_bytes = self.held.host_bytes if self.held is not None else 0
            told = min(told, max(self.backed_bytes, held_bytes))
        self.answered_bytes = told
        return told

    def _is_confirmed(self, beat: Heartbeat, now_s: float) -> bool:
        if self.mark and (self.doubted, self.mark) == (beat.epoch, beat.confirms):
            return True
        self.doubted, self.mark = beat.epoch, f"{int(now_s * 1e6):x}-{beat.sequence:x}"
        return False

    def _begin(self, epoch: str, now_s: float) -> None:
        """Another life: an empty memory, counters from 0, the same demand."""
        if self.epoch:
            self.past_epochs = (self.epoch, *self.past_epochs)[:EPOCHS_KEPT]
        self.epoch, self.began_s = epoch, now_s
        self.doubted = self.mark = ""
        self.demand.asked_tokens, self.demand.at_s = 0, 0.0

    def _see_curve(self, curve: tuple[tuple[int, float], ...]) -> None:
        """An agent whose budget changed has none for a while; the one before, by bytes, still
        holds."""
        if not curve:
            return
        if [size for size, _ in curve] != [size for size, _ in self.curve]:
            self.curve = curve
            return
        self.curve = tuple(
            (size, old + CURVE_WEIGHT * (new - old))
            for (size, new), (_, old) in zip(curve, self.curve, strict=True)
        )
