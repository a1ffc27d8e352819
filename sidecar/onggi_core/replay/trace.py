"""A trace: JSON lines, each a request with the ids of its prompt's blocks and its time.

    {"timestamp": 27482, "hash_ids": [46, 47, 48, 2354, 2355]}

Fields beyond these are ignored. Blocks with one id are one block; an id stands for the block and
all before it, as a prefix hash does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

IDS_MAX: Final = 1 << 20
"""Blocks of one prompt: far beyond any model, and small enough to refuse what is no trace."""
DISTINCT_MAX: Final = 1 << 26
"""Different blocks of a trace: what a machine with a few GiB can replay."""
TIME_MAX_MS: Final = 1e18
"""Thirty million years; beyond it, as at NaN, there is no telling what came first."""
_SHOWN_MAX: Final = 40
"""Characters of a wrong value shown."""


class TraceRefused(Exception):
    """A line that is no request. Says which line, which field, what is there and what should be."""

    def __init__(self, line: int, field: str, found: object, right: str) -> None:
        shown = repr(found)
        if len(shown) > _SHOWN_MAX:
            shown = shown[: _SHOWN_MAX - 3] + "..."
        super().__init__(f"line {line}: {field} is {shown}, should be {right}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The blocks of one request. blocks: numbers from 0, by first appearance in the trace."""

    blocks: tuple[int, ...]
    keys: tuple[bytes, ...]


class Trace:
    """Reads requests one by one; what it keeps is a number and a key for each different block."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._keys: list[bytes] = []

    @property
    def distinct(self) -> int:
        return len(self._keys)

    def read(self, lines: Iterable[str]) -> Iterator[Prompt]:
        """Raises TraceRefused at the first wrong line."""
        before = float("-inf")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            ids, time = _parsed(line, number)
            if time < before:
                right = f"no less than the line before's {before:g}"
                raise TraceRefused(number, "timestamp", time, right)
            before = time
            yield self.prompt(ids, number)

    def prompt(self, ids: Iterable[int], line: int = 0) -> Prompt:
        blocks = tuple([self._number(one, line) for one in ids])
        keys = self._keys
        return Prompt(blocks, tuple([keys[block] for block in blocks]))

    def _number(self, one: int, line: int) -> int:
        found = self._numbers.get(one)
        if found is None:
            if len(self._keys) == DISTINCT_MAX:
                raise TraceRefused(line, "hash_ids", one, f"among {DISTINCT_MAX:,} different ids")
            found = self._numbers[one] = len(self._keys)
            self._keys.append(hashlib.sha256(b"%d" % one).digest()[:16])
        return found


def _parsed(line: str, number: int) -> tuple[list[int], float]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise TraceRefused(number, "the line", line.strip(), "a JSON object") from None
    if not isinstance(record, dict):
        raise TraceRefused(number, "the line", record, "a JSON object")
    ids, time = record.get("hash_ids"), record.get("timestamp")
    if not isinstance(ids, list) or not ids or len(ids) > IDS_MAX:
        raise TraceRefused(number, "hash_ids", ids, f"a list of 1 to {IDS_MAX:,} whole numbers")
    for position, one in enumerate(ids):
        if type(one) is not int:
            raise TraceRefused(number, f"hash_ids[{position}]", one, "a whole number")
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not abs(time) < TIME_MAX_MS:
        raise TraceRefused(number, "timestamp", time, "a number of milliseconds")
    return ids, time
