"""Numbers in a row, as a column: array("i", range(...)) makes an object of each, which takes most
of what a chain costs. Here many are added to at once, as one large number."""

from __future__ import annotations

from array import array
from functools import lru_cache
from sys import byteorder
from typing import Final

_BYTES: Final = 4
_SOME: Final = 128
"""Numbers added to at once where there are no more: the blocks of most stores."""
_MANY: Final = 4096
"""And where there are: 16 KiB at a time."""
_STEPS_MAX: Final = 64
"""Steps remembered: one, and the sizes of the pages there are, each with its two rows."""


def in_a_row(first: int, count: int, step: int = 1, typecode: str = "i") -> array[int]:
    """array(typecode, range(first, first + count * step, step)), for numbers from 0 on that a
    column of four bytes holds. step: not negative."""
    at_once = _SOME if count <= _SOME else _MANY
    row, ones = _row(step, at_once)
    column = array(typecode)
    for done in range(0, count, at_once):
        numbers = row + ones * (first + done * step)  # what does not fit is behind those asked for
        raw = numbers.to_bytes(_BYTES * (at_once + 2), "little")
        column.frombytes(raw[: min(at_once, count - done) * _BYTES])
    if byteorder == "big":
        column.byteswap()
    return column


@lru_cache(_STEPS_MAX)
def _row(step: int, count: int) -> tuple[int, int]:
    """Numbers from 0 on, and as many ones: each as one large number."""
    numbers = b"".join([(n * step).to_bytes(_BYTES + 1, "little")[:_BYTES] for n in range(count)])
    ones = (1).to_bytes(_BYTES, "little") * count
    return int.from_bytes(numbers, "little"), int.from_bytes(ones, "little")
