"""What the allocator keeps for itself of memory that was let go of."""

import ctypes
from typing import Final

_MMAP_THRESHOLD: Final = -3
"""mallopt's name for it, from malloc.h."""
LARGE_BYTES: Final = 1 << 20
"""From here on a column of the index is a mapping of its own. glibc raises this by itself, to 32
MiB, with the first such block that is freed; then columns grow by being copied to the end of the
heap and leave holes behind them, 27 bytes a block at a million."""

_libc: Final = ctypes.CDLL(None)


def keep_large_apart() -> None:
    """Once, early: what is large goes back to the node when it is freed, and grows without being
    copied. Only glibc has the call."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_MMAP_THRESHOLD, LARGE_BYTES)


def give_back_free_heap() -> None:
    """Return free pages of the heap to the node: after a million blocks were adopted, tens of
    megabytes that nothing would use again. Only glibc has the call; others keep less."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
