"""What callers say of sizes, as bytes, and refused by the name and value that they wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from onggi_core.quantity import QuantityError, parse_size, spell_bytes

GIB: Final = 1 << 30
MIB: Final = 1 << 20
_NUMBERS: Final = {
    GIB: 'use a number of GiB, such as 0.5, or "512MiB"',
    1: 'use a whole number of bytes, or "512MiB"',
}
_GIB_MAX: Final = 1 << 30
"""Past it a number of GiB is none that an int64 of bytes holds; as a rule it is bytes."""


@dataclass(frozen=True, slots=True)
class Size:
    """An argument: its name, what was written for it, and the bytes that means."""

    name: str
    given: object
    nbytes: int

    def wrong(self, right: str) -> ValueError:
        """To be raised. right: what would be."""
        sizes = spell_bytes(self.nbytes)
        if isinstance(self.given, str) and self.given.strip().isdecimal():
            sizes += ", since text without a unit is bytes"
        return ValueError(f"{self.name} is {self.given!r}, {sizes}; {right}")

    def at_least(self, least: int) -> Size:
        """Raises ValueError."""
        if self.nbytes < least:
            raise self.wrong(f"use at least {spell_bytes(least)}")
        return self

    def at_most(self, most: int, since: str) -> Size:
        """Raises ValueError. since: whose limit that is, in a sentence."""
        if self.nbytes > most:
            units = "; numbers are GiB" if type(self.given) is int and self.given >= 1 << 20 else ""
            raise self.wrong(f"{since}: use up to {spell_bytes(most)}{units}")
        return self


def asked(name: str, given: float | str, unit: int = GIB) -> Size:
    """unit: what a number counts, GIB or 1. Raises TypeError and ValueError."""
    if isinstance(given, str):
        try:
            return Size(name, given, parse_size(given))
        except QuantityError as wrong:
            raise ValueError(
                f"{name} is {wrong.text!r:.60}, which {wrong.reason}; {_NUMBERS[unit]}"
            ) from None
    if isinstance(given, bool) or not isinstance(given, int if unit == 1 else (int, float)):
        raise TypeError(f"{name} is {given!r:.60}, a {type(given).__name__}; {_NUMBERS[unit]}")
    if not math.isfinite(given) or not 0 <= given <= _GIB_MAX * (GIB // unit):
        raise ValueError(f"{name} is {given}; {_NUMBERS[unit]}")
    return Size(name, given, math.ceil(given * unit))


def size(name: str, given: float | str) -> int:
    """Bytes. A number is GiB."""
    return asked(name, given).nbytes
