"""Where a page of one of the engine's host pools lies: as pieces of its memory, to be copied in
place, or, where a pool cannot say, packed into one flat tensor first.

K and V of a page are two pieces where the pool is page first, two a layer where it is layer first.
The pool tells their addresses anew for each call, since some pools move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

Row = tuple[tuple[int, int], ...]
"""One page: (address, bytes) of its pieces, in the order in which they lie in the arena."""

PIECES: Final = "pieces"
FLAT: Final = "flat"

_CANNOT_SAY: Final = (
    AssertionError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""By which pools refuse to tell their addresses: a layout, a side state, a pool without memory."""


class PoolUnsupported(Exception):
    """A pool whose pages cannot be kept. The message says why."""


def page_tokens(pool: Any) -> int:
    """Host indices of one page."""
    return int(getattr(pool, "logical_page_size", 0) or getattr(pool, "page_size", 1) or 1)


def rows(pool: Any, host_indices: Any, count: int) -> list[Row]:
    """The pages behind `host_indices`. Raises ValueError for other than `count` of them."""
    found = len(host_indices) if host_indices is not None else 0
    if found != count * page_tokens(pool):
        raise ValueError(
            f"host_indices has {found} entries for {count} pages of {page_tokens(pool)}"
        )
    addresses, sizes = pool.get_page_buffer_meta(host_indices)
    pieces = tuple(zip(_flattened(addresses), _flattened(sizes), strict=True))
    each, left = divmod(len(pieces), count)
    if left or not each:
        raise ValueError(f"the pool tells {len(pieces)} pieces for {count} pages")
    return [pieces[begin : begin + each] for begin in range(0, len(pieces), each)]


def _flattened(values: Sequence[Any]) -> Iterator[int]:
    """A pool may tell the pieces of one object as a list of its own."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from map(int, value)
        else:
            yield int(value)


def piece_sizes(pool: Any) -> tuple[int, ...]:
    """Bytes of the pieces of a page; empty for a pool that cannot say where they lie."""
    import torch

    try:
        (row,) = rows(pool, torch.arange(page_tokens(pool)), 1)
    except _CANNOT_SAY:
        return ()
    return tuple(nbytes for _, nbytes in row)


def flat_bytes(pool: Any) -> int:
    """Bytes of a page that is packed. Raises PoolUnsupported."""
    try:
        return nbytes_of(pool.get_dummy_flat_data_page())
    except _CANNOT_SAY as why:
        raise PoolUnsupported(f"{type(pool).__name__} hands out no pages: {why}") from why


def nbytes_of(page: Any) -> int:
    """Of a tensor, or of anything else that has bytes."""
    if hasattr(page, "element_size"):
        return int(page.numel() * page.element_size())
    return memoryview(page).nbytes
