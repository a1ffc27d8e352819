"""The last events of a run, kept cheaply and written out only when somebody reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

KEPT: Final = 60
SHOWN_MAX: Final = 6
"""Items of a list that are written out."""

_Entry = tuple[int, float, Any, Sequence[Any]]


class Trace:
    def __init__(self) -> None:
        self._last: deque[_Entry] = deque(maxlen=KEPT)
        self._digest = blake2b(digest_size=16)
        self.hashing = False
        """Fold every entry into `digest`: two runs that agree on it went the same way."""

    def note(self, step: int, now_s: float, event: object, actions: Sequence[object]) -> None:
        entry = (step, now_s, event, actions)
        self._last.append(entry)
        if self.hashing:
            self._digest.update(_line(entry).encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self) -> list[str]:
        return [_line(entry) for entry in self._last]


def _line(entry: _Entry) -> str:
    step, now_s, event, actions = entry
    out = f"{step:>7} {now_s:>11.4f}s  {shown(event)}"
    return out + "".join(f"\n{'':>23}-> {shown(action)}" for action in actions)


def shown(value: object) -> str:
    """Short and the same in every process."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()[:8] or "-"
    if is_dataclass(value):
        parts = [
            f"{field.name}={shown(getattr(value, field.name))}"
            for field in fields(value)
            if field.name != "op"
        ]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, dict):
        return f"{{{len(value)} fields}}"
    if isinstance(value, (tuple, list)):
        some = ", ".join(shown(item) for item in value[:SHOWN_MAX])
        more = f", ... {len(value)}" if len(value) > SHOWN_MAX else ""
        return f"[{some}{more}]"
    return str(value)
