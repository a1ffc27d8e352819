"""Faults, by whose they are. Expected outcomes are values and never appear here."""

from __future__ import annotations

import reprlib
from typing import Final

SHOWN_CHARS_MAX: Final = 80
"""Of a wrong value: enough to know it by, and a prompt of a million tokens is not a message."""

_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = SHOWN_CHARS_MAX


class OnggiError(Exception):
    """Every fault of ours; catch this at a boundary, nothing broader."""


class IllegalMove(OnggiError):
    """Our fault: a state machine was asked for a move its table lacks. Nothing was changed."""

    def __init__(self, what: str, state: object, event: object) -> None:
        super().__init__(f"{what}: no move from {state} on {event}")
        self.state = state
        self.event = event


class BadRequest(OnggiError, ValueError):
    """The caller's fault: one field is wrong. Names the field, its value and what is right."""

    def __init__(self, field: str, value: object, right: str) -> None:
        super().__init__(f"{field} is {_SHOWN.repr(value)}; {right}")
        self.field = field
        self.value = value
        self.right = right
