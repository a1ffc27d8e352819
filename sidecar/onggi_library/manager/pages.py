"""How a value is cut into pages, and what those are called."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from onggi_library.manager.errors import DoesNotFit

UNIT: Final = 4096
"""What the agent counts places in."""
PAGE_MAX: Final = 1 << 20
"""The largest page: past it a disk gains nothing."""
STEPS_BITS: Final = 3
"""Sizes of pages between a power of two and the next: 8, so that at most an eighth lies idle, and
48 sizes are all there are from 4 KiB to 1 MiB."""
PAGES_MAX: Final = 1 << 16
"""Pages of one value: 64 GiB."""
_SERIAL_MAX: Final = (1 << 40) - 1

_KEY: Final = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Cut:
    """pages of page_bytes each; what lies behind the value's bytes in the last one is nothing."""

    page_bytes: int
    pages: int

    @property
    def nbytes(self) -> int:
        return self.page_bytes * self.pages


def check_whole(nbytes: int) -> None:
    """Raises DoesNotFit for a value that no number of pages holds."""
    if cut(nbytes).pages > PAGES_MAX:
        raise DoesNotFit(
            f"a value of {nbytes} bytes is too large; put it as several steps of up to "
            f"{PAGES_MAX} MiB",
            value_bytes=nbytes,
            room_bytes=PAGES_MAX * PAGE_MAX,
        )


def cut(nbytes: int) -> Cut:
    """Equal pages for a value: one up to PAGE_MAX, else as many as that takes."""
    pages = max(1, -(-nbytes // PAGE_MAX))
    each = max(1, -(-nbytes // pages))
    step = max(UNIT, 1 << max(0, (each - 1).bit_length() - 1 - STEPS_BITS))
    return Cut(-(-each // step) * step, pages)


def keys_of(serial: int, pages: int, owner: int) -> list[bytes]:
    """Names of a value's pages. serial: from 1, never used again. owner: a random number, so that
    nobody else's values have the same."""
    if not 0 < serial <= _SERIAL_MAX or pages > PAGES_MAX:
        raise OverflowError(f"value {serial} of {pages} pages is beyond what a manager can name")
    return [_KEY.pack(serial << 16 | page, owner) for page in range(pages)]
