"""What columns, lists and tables take of the heap: a handful of sizes, whatever they hold."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any, Final

INT_BYTES: Final = 32
"""A number in a list or a table, as an object of its own. Some are shared, so this is at most."""


def weight(*holders: object) -> int:
    """Of the attributes of these, each counted once, whoever else has it. Lists that lie in lists
    are counted, deeper ones are not."""
    parts = {id(part): part for holder in holders for part in _parts(holder)}
    return sum(map(_weigh, parts.values()))


def _parts(holder: object) -> Iterator[Any]:
    yield from getattr(holder, "__dict__", {}).values()
    for kind in type(holder).__mro__:
        for name in getattr(kind, "__slots__", ()):
            yield getattr(holder, name, None)


def _weigh(part: Any) -> int:
    if isinstance(part, (array, bytearray)):
        return sys.getsizeof(part)
    if isinstance(part, list) and part and isinstance(part[0], list):
        return sys.getsizeof(part) + sum(map(_weigh, part))
    if isinstance(part, (list, dict, set)):
        return sys.getsizeof(part) + INT_BYTES * len(part)
    return 0
