"""What callers say of sizes, as bytes; and what there is where they say nothing."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from onggi_core.quantity import QuantityError, parse_size, spell_bytes

GIB: Final = 1 << 30
MIB: Final = 1 << 20
CPU_MIN: Final = 16 * MIB
NVM_MIN: Final = 64 * MIB
NVM_MARGIN_SHARE: Final = 10
"""One part in so many of what the file system has free is left to others,"""
NVM_MARGIN_MIN: Final = GIB
"""and never less than this."""
NVM_DEFAULT_MAX: Final = 1024 * GIB
"""What is taken without being asked for at most."""
EXTENT_MIN: Final = MIB
EXTENT_MAX: Final = 64 * MIB
EXTENTS_AIM: Final = 64
"""An arena of this many extents has room for pages of several sizes."""


def size(name: str, given: float | str) -> int:
    """Bytes. A number is GiB."""
    if isinstance(given, str):
        try:
            return parse_size(given)
        except QuantityError as wrong:
            raise ValueError(f"{name}: {wrong}, or a number of GiB") from None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        kind = type(given).__name__
        raise TypeError(f'{name} is a {kind}; use a number of GiB, such as 0.5, or "512MiB"')
    if not math.isfinite(given) or given < 0 or given > 1 << 30:
        raise ValueError(f"{name} is {given}; use a number of GiB from 0 on")
    return math.ceil(given * GIB)


def at_least(name: str, given: float | str, least: int) -> int:
    nbytes = size(name, given)
    if nbytes < least:
        raise ValueError(
            f"{name} is {given!r}, {spell_bytes(nbytes)}; use at least {spell_bytes(least)}"
        )
    return nbytes


def nvm_default(folder: Path) -> int:
    """What the file system has free less a margin, up to NVM_DEFAULT_MAX."""
    there = os.statvfs(folder)
    free = there.f_bavail * there.f_frsize
    wanted = min(NVM_DEFAULT_MAX, free - max(NVM_MARGIN_MIN, free // NVM_MARGIN_SHARE))
    if wanted < NVM_MIN:
        raise ValueError(
            f"nvm_path is {str(folder)!r}, whose file system has {spell_bytes(free)} free; "
            f"use another one, or say nvm_memory"
        )
    return wanted


def extent_of(memory: int) -> int:
    """The part that an arena is cut into, a power of two; memory is rounded to it."""
    share = max(1, memory // EXTENTS_AIM)
    return min(EXTENT_MAX, max(EXTENT_MIN, 1 << (share.bit_length() - 1)))
