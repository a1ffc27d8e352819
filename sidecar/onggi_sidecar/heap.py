"""Memory that the allocator keeps for itself after much was let go of."""

import ctypes
from typing import Final

_libc: Final = ctypes.CDLL(None)


def give_back_free_heap() -> None:
    """Return free pages of the heap to the node: after a million blocks were adopted, tens of
    megabytes that nothing would use again. Only glibc has the call; others keep less."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
