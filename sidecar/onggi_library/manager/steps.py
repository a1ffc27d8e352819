"""What may name a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

Step = int | str
_ONE: Final = (str, bytes, bytearray, memoryview)


def check_step(name: str, step: object) -> None:
    """Raises TypeError."""
    if type(step) not in (int, str):
        kind = type(step).__name__
        raise TypeError(f"{name} is {step!r:.60}, a {kind}; use an int or a str")


def checked_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """One after the other. Raises TypeError, for what is none when its turn comes. Text and bytes
    are refused, though Python would take them apart."""
    if isinstance(steps, Iterable) and not isinstance(steps, _ONE):
        return _checked(iter(steps))
    right = f", such as [{steps!r:.60}]" if isinstance(steps, (int, str)) else ""
    kind = type(steps).__name__
    raise TypeError(f"steps is {steps!r:.60}, a {kind}; use a list of steps{right}")


def _checked(steps: Iterator[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        check_step(f"steps[{number}]", step)
        yield step
