"""How long steps take that compute prompts: from the plan to the report, one at a time.

An engine may plan a step before the one before it has been reported. So a step's own time begins
with its plan or with the report before it, whichever came later.
"""

from __future__ import annotations

from typing import Final

STEP_TOKENS_MIN: Final = 64
"""Steps with fewer tokens are not prefill: their time is that of reading the weights."""

OPEN_MAX: Final = 8
"""Steps planned and not reported: engines plan one or two ahead. A step whose report was lost
makes room for the next."""


class Pace:
    def __init__(self) -> None:
        self._open: dict[int, tuple[int, float]] = {}
        self._reported_s = float("-inf")
        self._next = 1

    def planned(self, tokens: int, now_s: float) -> int:
        """A step with so many tokens begins; its number, or 0 if it tells nothing."""
        if tokens < STEP_TOKENS_MIN:
            return 0
        if len(self._open) >= OPEN_MAX:
            self._open.clear()
        number, self._next = self._next, self._next + 1
        self._open[number] = tokens, now_s
        return number

    def reported(self, number: int, now_s: float) -> tuple[int, float] | None:
        """Tokens and seconds of the step; None: it is not known."""
        began_s, self._reported_s = self._reported_s, now_s
        known = self._open.pop(number, None)
        if known is None:
            return None
        tokens, planned_s = known
        return tokens, now_s - max(planned_s, began_s)
