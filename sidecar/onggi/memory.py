"""Addresses of what a caller hands in: bytes-like objects and torch tensors in host memory.

torch is not imported: whatever has data_ptr() is taken for a tensor, so that the client costs
nothing where there is no torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple


class Held(NamedTuple):
    """One page of the caller's memory. Keep it until the copy is over: `keeper` is the export that
    keeps the memory where it is."""

    at: int
    nbytes: int
    keeper: object


class HeldPages(NamedTuple):
    """Pages of the caller's memory, all of one size. Keep it until the copy is over."""

    addresses: Sequence[int]
    keeper: object

    def chosen(self, numbers: Sequence[int]) -> HeldPages:
        """Those of these numbers, in ascending order."""
        if len(numbers) == len(self.addresses):
            return self
        return HeldPages([self.addresses[number] for number in numbers], self.keeper)


_export: Final = ctypes.c_char.from_buffer
_size_of: Final = attrgetter("nbytes")


def hold_pages(pages: Sequence[Any], nbytes: int, *, writable: bool, first: int = 0) -> HeldPages:
    """The memory of pages of `nbytes` each. Raises ValueError as hold() does, naming the one that
    is wrong by its number, counted from `first`.

    Pages of one kind, which is what engines have, are looked at by a few calls for all of them: 0.3
    us a page where hold() takes 1.3, which at 16 KiB a page is half of what copying it takes.
    """
    kinds = set(map(type, pages))
    kind = kinds.pop() if len(kinds) == 1 else None
    held = None
    if kind is memoryview or kind is bytearray:
        held = _hold_buffers(
            pages, nbytes, set(map(_size_of if kind is memoryview else len, pages))
        )
    elif kind is not None and hasattr(kind, "data_ptr"):
        held = _hold_tensors(pages, nbytes)
    if held is not None:
        return held
    each = [
        hold(page, nbytes, name=f"pages[{number}]", writable=writable)
        for number, page in enumerate(pages, first)
    ]
    return HeldPages([one.at for one in each], each)


def hold_whole(pages: Any, count: int, nbytes: int, *, writable: bool) -> HeldPages | None:
    """One piece of memory that has `count` pages of `nbytes` one after the other; None for a list
    of pages. Raises ValueError as hold() does."""
    if isinstance(pages, (list, tuple)):
        return None
    if not hasattr(pages, "data_ptr"):
        try:
            together = memoryview(pages).nbytes
        except TypeError:
            return None
        if together != count * nbytes:
            if isinstance(pages, (bytes, bytearray, memoryview)):
                raise ValueError(
                    f"pages has {together} bytes; {count} pages of {nbytes} were named"
                )
            return None
    held = hold(pages, count * nbytes, name="pages", writable=writable)
    return HeldPages(range(held.at, held.at + count * nbytes, nbytes), held)


def _hold_buffers(pages: Sequence[Any], nbytes: int, sizes: set[int]) -> HeldPages | None:
    """None: not all of them are writable and as they should be."""
    if sizes != {nbytes}:
        return None
    try:
        exports = list(map(_export, pages))
    except (TypeError, ValueError):
        return None
    return HeldPages(list(map(ctypes.addressof, exports)), exports)


def _hold_tensors(pages: Sequence[Any], nbytes: int) -> HeldPages | None:
    try:
        addresses = [
            page.data_ptr()
            for page in pages
            if page.is_cpu and page.nbytes == nbytes and page.is_contiguous()
        ]
    except AttributeError:  # a torch before 2.1, or something else that has data_ptr()
        return None
    return HeldPages(addresses, pages) if len(addresses) == len(pages) else None


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
        raise ValueError(
            f"{name} has {view.nbytes} bytes; a page of this space has {nbytes}: hand in what "
            "page_bytes was counted of"
        )
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
        raise ValueError(
            f"{name} has {size} bytes, {tuple(page.shape)} of {page.dtype}; a page of this space "
            f"has {nbytes}: hand in the shape and dtype that page_bytes was counted of"
        )
    return Held(page.data_ptr(), nbytes, page)
