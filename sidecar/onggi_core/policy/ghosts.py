"""Ghost caches: every policy, run on a sample of the live stream, and the one that is ahead.

A ghost cache holds names alone (policy.shadow). It sees one key in `1 << shift`, by the key's last
bits, and is that much smaller than the tier. A sampled block's parent is the sampled block
before it in its chain: whatever gives up leaves first keeps or loses a block with all before it, so
a sampled chain lives in a small cache as the whole one does in the tier.

Pure: no clock, no dice; the same stream gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from onggi_core.policy.choosers import Chooser
from onggi_core.policy.history import History
from onggi_core.policy.names import FIXED, PolicyName, chooser_of
from onggi_core.policy.reuse import Reuse
from onggi_core.policy.shadow import Shadow

GHOST_BLOCKS: Final = 1024
"""The most blocks of a ghost cache of the tier's own size: enough to tell policies apart that
differ by a hundredth, and small enough that all ghosts of a tier take a few MiB."""

SHIFT_MIN: Final = 5
"""At most one key in 32 goes through the ghost caches, however small the tier: what bounds the time
that a key costs. Above 32,768 blocks it is one in 64 and fewer."""
SHIFT_MAX: Final = 16

WATCHED: Final = 8
"""Keys watched, in ghost caches of the tier's size: what the largest cache of the curve holds, and
as much again so that what it lost is still known when it comes back."""
WATCHED_MIN: Final = 2048

PART_LOOKS: Final = 64
"""Looks at a sampled key, in the history or in one ghost cache, that `parts` makes at a time: a
fifth of a millisecond. Three times that for the longest prompts, whose sample a ghost cache takes
whole."""

_MASKED: Final = 16
"""So many keys are left out by their last bits in the time of a look."""

_MORE_WATCHED: Final = 2
_MORE_MASK: Final = (1 << _MORE_WATCHED) - 1
"""Four times as many keys are watched for what they teach as go through the ghost caches, where one
costs ten times as much."""

CURVE: Final = (0.25, 0.5, 2.0, 4.0)
"""The sizes of the curve beside the tier's own, in parts of it."""

_WINDOW: Final = 4
"""After so many sampled keys, in ghost caches' sizes, the past counts half."""

_SETTLED: Final = 2
"""At most half of `_WINDOW`, or fading would unsettle the curve again and again."""

_AHEAD: Final = 0.005
_SURE: Final = 4.0
"""Another policy takes over when it is ahead by a two-hundredth of the hits, and by four standard
deviations of the difference: each change of mind costs hits, and most leads are noise. Four, since
requests are not independent of each other: a block that one policy happened to keep may be hit many
times. Two do better where the policy begun with is wrong, and worse where it is right (decision
0010)."""


class Ghosts:
    def __init__(self, blocks: int, candidates: Sequence[PolicyName] = FIXED) -> None:
        """blocks: what the tier holds. candidates: the policies to run, the first one to begin
        with; with one alone nothing is run, and only its choosers learn."""
        self.reuse = Reuse()
        self.shift = SHIFT_MIN
        while blocks >> self.shift > GHOST_BLOCKS and self.shift < SHIFT_MAX:
            self.shift += 1
        watched = self.shift - _MORE_WATCHED
        self._masks = (1 << min(watched, 8)) - 1, (1 << max(watched - 8, 0)) - 1
        self._size = max(blocks >> self.shift, 1)
        self._history = History(max(self._size * WATCHED, WATCHED_MIN) << _MORE_WATCHED, self.reuse)
        self._names = tuple(candidates)
        self._choosers = [chooser_of(name, self.reuse) for name in self._names]
        self._at = 0
        rivals = self._choosers if len(self._choosers) > 1 else []
        self._shadows = [Shadow(self._size, chooser) for chooser in rivals]
        sizes = [max(round(self._size * part), 1) for part in CURVE] if rivals else []
        self._others = [Shadow(size, self.chooser()) for size in sizes]
        self._asked = 0.0
        self._since = 0
        self._hits = [0.0] * len(self._shadows)
        self._other_hits = [0.0] * len(self._others)
        self._lead = [0.0] * len(self._shadows)
        self._noise = [0.0] * len(self._shadows)

    def access(self, keys: Sequence[bytes], use: int) -> None:
        """A request asked for this chain of blocks. use: as in policy.ranking, a new one."""
        for _ in self.parts(keys, use):
            pass

    def parts(self, keys: Sequence[bytes], use: int) -> Iterator[None]:
        """The same in parts of a bounded time, with nothing else between them but questions: what
        those answer does not change before the last part."""
        low, high = self._masks
        sample = [key for key in keys if not (key[-1] & low or key[-2] & high)]
        looks = len(keys) // _MASKED
        chain: list[int] = []
        counts: list[int] = []
        for key in sample:
            if looks >= PART_LOOKS:
                looks = 0
                yield
            looks += 1
            number, count, forgotten = self._history.see(key, use)
            if forgotten >= 0:
                for shadow in (*self._shadows, *self._others):
                    shadow.drop(forgotten)
            if not key[-3] & _MORE_MASK:
                chain.append(number)
                counts.append(count)
        if not (self._shadows and chain):
            return
        runs: list[int] = []
        for shadow in (*self._shadows, *self._others):
            if looks >= PART_LOOKS:
                looks = 0
                yield
            looks += len(chain)
            runs.append(shadow.ask(chain, counts, use))
        self._counted(len(chain), runs)

    def best(self) -> PolicyName:
        """The policy that is ahead, or was when it was last worth a change."""
        return self._names[self._at]

    def chooser(self) -> Chooser:
        """The best policy's own chooser, with all that it has learned."""
        return self._choosers[self._at]

    @property
    def settled(self) -> bool:
        """Whether the curve is drawn from enough to act on: twice what the tier's own ghost holds.
        Before that it tells of empty caches that fill."""
        return self._asked >= _SETTLED * self._size

    def curve(self) -> tuple[tuple[int, float], ...]:
        """(blocks, share of the blocks asked for that would be hits) for a few sizes of the tier,
        under the best policy; empty before anything was asked for."""
        if not self._asked:
            return ()
        sizes = [(s.blocks, hits) for s, hits in zip(self._others, self._other_hits, strict=True)]
        sizes.append((self._size, self._hits[self._at]))
        return tuple((blocks << self.shift, hits / self._asked) for blocks, hits in sorted(sizes))

    def shares(self) -> dict[PolicyName, float]:
        """What share of the blocks asked for would be hits under each policy."""
        asked = self._asked or 1.0
        return {name: hits / asked for name, hits in zip(self._names, self._hits, strict=False)}

    def _counted(self, asked: int, runs: Sequence[int]) -> None:
        """runs: how many of the sampled blocks asked for each ghost cache had."""
        rivals = len(self._shadows)
        self._hits = [a + b for a, b in zip(self._hits, runs[:rivals], strict=True)]
        others = zip(self._other_hits, runs[rivals:], strict=True)
        self._other_hits = [a + b for a, b in others]
        self._asked += asked
        self._since += asked
        self._judge(runs[:rivals])

    def _judge(self, runs: Sequence[int]) -> None:
        """Compares each policy with the best one, request by request."""
        mine = runs[self._at]
        for position, run in enumerate(runs):
            if run != mine:
                self._lead[position] += run - mine
                self._noise[position] += (run - mine) ** 2
        ahead = max(self._lead)
        position = self._lead.index(ahead)
        sure = _SURE * self._noise[position] ** 0.5
        if ahead > sure and ahead > _AHEAD * self._hits[position]:
            self._follow(position)
        if self._since >= self._size * _WINDOW:
            self._fade()

    def _follow(self, position: int) -> None:
        self._at = position
        self._lead = [0.0] * len(self._shadows)
        self._noise = [0.0] * len(self._shadows)
        for shadow in self._others:
            shadow.ranking.chooser = self.chooser()

    def _fade(self) -> None:
        self._since = 0
        self._asked /= 2
        self._hits = [hits / 2 for hits in self._hits]
        self._other_hits = [hits / 2 for hits in self._other_hits]
        self._lead = [lead / 2 for lead in self._lead]
        self._noise = [noise / 4 for noise in self._noise]
