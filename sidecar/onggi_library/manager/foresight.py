"""Which steps are asked for next, learned from the order of earlier gets, and how sure that is.

Pure: reads in, guesses out. A reader goes along in even strides, or it jumps; a jump is kept by the
step that it began at. So a sweep over any number of steps is one stride and one jump.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from onggi_library.manager.steps import Step

SURE: Final = 0.75
"""Of the last reads foretold rightly, before anything is brought up for a guess: a wrong one costs
a copy, and the place of something else. From nothing it takes 22 right ones in a row."""
WEIGHT: Final = 1 / 16
"""Of the newest read."""
JUMPS_MAX: Final = 4096
"""One megabyte. What jumps more often than that follows no order that could be learned."""
TRUST_MAX: Final = 3
"""Wrong guesses after which even a jump that was always right is given up."""
READERS_MAX: Final = 16
"""Threads whose reads are told apart; the one that read longest ago is forgotten."""


@dataclass(slots=True)
class _Reader:
    last: Step
    stride: int | None = None
    moved: int | None = None
    """By how much, the last time."""
    next: Step | None = None
    """Guess of what comes now, made one read ago,"""
    next_of_old: Step | None = None
    """and two reads ago."""
    after: Step | None = None
    """Guess of what comes after that."""


class Foresight:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._readers: OrderedDict[int, _Reader] = OrderedDict()
        self._jumps: OrderedDict[Step, tuple[Step, int]] = OrderedDict()
        """From where: to where, and how far it is trusted."""
        self.next_right = 0.0
        """0 to 1: of the reads lately, those whose step was foretold one read before. One that
        nothing was said of counts as wrong."""
        self.after_right = 0.0
        """The same, two reads before."""

    def read(self, step: Step, reader: int) -> tuple[Step, ...]:
        """A reader (a thread's number) asked for a step. Answers what is worth bringing up now, the
        soonest first: the next one and the next but one, as far as guesses have been right."""
        before = self._readers.get(reader)
        if before is None:
            before = self._readers[reader] = _Reader(step)
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)
        else:
            self._readers.move_to_end(reader)
            self._judge(before, step)
            self._learn(before, step)
        return self._guess(before, step)

    def _judge(self, reader: _Reader, step: Step) -> None:
        self.next_right += WEIGHT * ((reader.next == step) - self.next_right)
        self.after_right += WEIGHT * ((reader.next_of_old == step) - self.after_right)

    def _learn(self, reader: _Reader, step: Step) -> None:
        begun, along = reader.last, _along(reader.last, reader.stride)
        jump = self._jumps.get(begun)
        if jump is None:
            if step != along and (along is not None or str in (type(step), type(begun))):
                self._jumps[begun] = (step, 0)
        elif jump[0] == step:
            self._jumps[begun] = (step, min(TRUST_MAX, jump[1] + 1))
            self._jumps.move_to_end(begun)
        elif jump[1]:
            self._jumps[begun] = (jump[0], jump[1] - 1)
        elif step == along:
            del self._jumps[begun]
        else:
            self._jumps[begun] = (step, 0)
        if len(self._jumps) > JUMPS_MAX:
            self._jumps.popitem(last=False)
        moved = step - begun if isinstance(step, int) and isinstance(begun, int) else None
        if moved is not None and (reader.stride is None or moved == reader.moved):
            reader.stride = moved
        reader.moved, reader.last = moved, step

    def _guess(self, reader: _Reader, step: Step) -> tuple[Step, ...]:
        reader.next_of_old = reader.after
        reader.next = self._after(step, reader.stride)
        reader.after = None if reader.next is None else self._after(reader.next, reader.stride)
        sure = [
            guess
            for guess, right in ((reader.next, self.next_right), (reader.after, self.after_right))
            if guess is not None and guess != step and right >= SURE
        ]
        return tuple(dict.fromkeys(sure))

    def _after(self, step: Step, stride: int | None) -> Step | None:
        jump = self._jumps.get(step)
        return jump[0] if jump is not None else _along(step, stride)


def _along(step: Step, stride: int | None) -> Step | None:
    return step + stride if isinstance(step, int) and stride is not None else None
