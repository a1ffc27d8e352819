"""Addresses of what a caller hands in: bytes-like objects and torch tensors in host memory.

torch is not imported: whatever has data_ptr() is taken for a tensor, so that the client costs
nothing where there is no torch.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class Held(NamedTuple):
    """One page of the caller's memory. Keep it until the copy is over: `keeper` is the export that
    keeps the memory where it is."""

    at: int
    nbytes: int
    keeper: object


def hold(page: Any, nbytes: int, *, name: str, writable: bool) -> Held:
    """The memory of one page. Raises ValueError naming the field, what it is and what is right.

    page: C-contiguous bytes-like object, or contiguous torch tensor on the CPU, of exactly
    `nbytes` bytes. Memory that is read-only and not `bytes` itself is copied first.
    """
    if hasattr(page, "data_ptr"):
        return _hold_tensor(page, nbytes, name)
    try:
        view = memoryview(page)
    except TypeError as error:
        raise ValueError(
            f"{name} is a {type(page).__name__}; hand in a bytes-like object or a torch tensor"
        ) from error
    if not view.c_contiguous:
        raise ValueError(f"{name} has strides {view.strides}; hand in C-contiguous memory")
    if view.nbytes != nbytes:
        raise ValueError(f"{name} has {view.nbytes} bytes; a page of this space has {nbytes}")
    if not view.readonly:
        first = ctypes.c_char.from_buffer(view)
        return Held(ctypes.addressof(first), nbytes, first)
    if writable:
        raise ValueError(f"{name} is read-only; a load writes into it")
    raw = page if isinstance(page, bytes) else view.tobytes()
    inside = ctypes.c_char_p(raw)  # points at the bytes object's own memory
    return Held(ctypes.cast(inside, ctypes.c_void_p).value or 0, nbytes, (raw, inside))


def _hold_tensor(page: Any, nbytes: int, name: str) -> Held:
    if page.device.type != "cpu":
        raise ValueError(
            f"{name} is on {page.device}; use onggi.torch_pages for memory of a device"
        )
    if not page.is_contiguous():
        raise ValueError(f"{name} has strides {page.stride()}; hand in a contiguous tensor")
    size = page.numel() * page.element_size()
    if size != nbytes:
        raise ValueError(f"{name} has {size} bytes; a page of this space has {nbytes}")
    return Held(page.data_ptr(), nbytes, page)
