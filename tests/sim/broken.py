"""What a checker says when an invariant does not hold."""

from __future__ import annotations


class Broken(Exception):
    """`checker` names the invariant; the message says what was seen."""

    def __init__(self, checker: str, seen: str) -> None:
        super().__init__(f"{checker}: {seen}")
        self.checker = checker
        self.seen = seen
