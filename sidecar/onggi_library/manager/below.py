"""Values on their way to the tiers below the device and back: as they are, or rounded to int8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import torch

from onggi_library.carrier import Source
from onggi_library.manager.journal import Notes
from onggi_library.manager.lower import LowerTiers
from onggi_library.manager.pages import Cut, cut
from onggi_library.manager.values import ALIGN, Form, Leaf, leaves
from onggi_library.rounding import Rounding, check_dtype, give_back, round_off


class Coding(Protocol):
    """What becomes of a value's row of bytes below."""

    @property
    def rounding(self) -> Rounding | None: ...

    def nbytes(self, form: Form) -> int:
        """Of the row below."""
        ...

    def down(self, form: Form, row: Any) -> Any:
        """The row below, of a value's."""
        ...

    def up(self, form: Form, below: Any, row: Any) -> Any:
        """The value's row again. row: makes one of so many bytes."""
        ...


class Exact:
    """Bit for bit: one row is the other."""

    rounding = None

    def nbytes(self, form: Form) -> int:
        return form.nbytes

    def down(self, form: Form, row: Any) -> Any:  # noqa: ARG002
        return row

    def up(self, form: Form, below: Any, row: Any) -> Any:  # noqa: ARG002
        return below


class Int8:
    """Each tensor [.., tokens, channels] as its scales and int8; as it is, where that is no longer.
    Raises ValueError for values that are no floating-point numbers."""

    def __init__(self) -> None:
        self._rounding = Rounding()

    @property
    def rounding(self) -> Rounding:
        return replace(self._rounding)

    def nbytes(self, form: Form) -> int:
        return sum(_aligned(_below_bytes(leaf)) for leaf in leaves(form.tree))

    def down(self, form: Form, row: Any) -> Any:
        below = torch.zeros(cut(self.nbytes(form)).nbytes, dtype=torch.uint8, device="cpu")
        for leaf, exact, part in _pairs(form, row, below):
            if not _shorter(leaf):
                part.copy_(exact)
                continue
            rounded, scales = round_off(_blocks(leaf, exact), self._rounding)
            cut_at = scales.numel() * 4
            part[:cut_at].copy_(scales.reshape(-1).view(torch.uint8))
            part[cut_at:].copy_(rounded.reshape(-1).view(torch.uint8))
        return below

    def up(self, form: Form, below: Any, row: Any) -> Any:
        whole = row(cut(form.nbytes).nbytes)
        for leaf, exact, part in _pairs(form, whole, below):
            if not _shorter(leaf):
                exact.copy_(part)
                continue
            into = _blocks(leaf, exact)
            cut_at = into.shape[0] * into.shape[2] * 4
            scales = part[:cut_at].view(torch.float32).view(into.shape[0], 1, into.shape[2])
            give_back(part[cut_at:].view(torch.int8).view(into.shape), scales, into)
        return whole


def _pairs(form: Form, row: Any, below: Any) -> Iterator[tuple[Leaf, Any, Any]]:
    """Each tensor with elements, its bytes in the value's row, and its bytes below."""
    offset = 0
    for leaf in leaves(form.tree):
        nbytes = _below_bytes(leaf)
        if nbytes:
            exact = row[leaf.offset : leaf.offset + leaf.nbytes]
            yield leaf, exact, below[offset : offset + nbytes]
        offset += _aligned(nbytes)


def _blocks(leaf: Leaf, exact: Any) -> Any:
    """A tensor's bytes as [.., tokens, channels], of three dimensions."""
    return exact.view(leaf.dtype).view(-1, *leaf.shape[-2:])


def _shorter(leaf: Leaf) -> bool:
    return _below_bytes(leaf) < leaf.nbytes


def _below_bytes(leaf: Leaf) -> int:
    if len(leaf.shape) < 2 or not leaf.nbytes:
        return leaf.nbytes
    elements: int = leaf.nbytes // leaf.dtype.itemsize
    return min(leaf.nbytes, elements + 4 * (elements // leaf.shape[-2]))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


class Below:
    """The lower tiers, by value."""

    def __init__(self, tiers: LowerTiers, coding: Coding, notes: Notes) -> None:
        """notes: told of a value before any of it is below."""
        self.tiers = tiers
        self.coding = coding
        self._notes = notes

    def cut(self, form: Form) -> Cut:
        """Into the pages that a value takes there."""
        return cut(self.coding.nbytes(form))

    def check(self, form: Form) -> None:
        """Raises ValueError for a value that cannot be kept in this way."""
        if self.coding.rounding is not None:
            for leaf in leaves(form.tree):
                check_dtype("a tensor of kv", leaf.dtype)

    def put(self, serial: int, form: Form, row: torch.Tensor) -> None:
        """Keep a value, whose row is in host memory. Raises DoesNotFit, Unreachable,
        FloatingPointError, and what notes raise, with nothing kept."""
        below, pages = self.coding.down(form, row), self.cut(form)
        self._notes.begin(serial, form)
        try:
            self.tiers.reserve(pages)
            try:
                self.tiers.store(serial, pages, below)
            except BaseException:
                self.tiers.discard(serial, pages)
                raise
        except BaseException:
            self._notes.gave_up(serial)
            raise

    def get(
        self, serial: int, form: Form, new_row: Callable[[int], torch.Tensor]
    ) -> tuple[Source | None, torch.Tensor]:
        """Where the value was, None if it is lost, and its row in host memory. Raises
        Unreachable."""
        pages = self.cut(form)
        below = new_row(pages.nbytes)
        source = self.tiers.load(serial, pages, below)
        return source, below if source is None else self.coding.up(form, below, new_row)

    def hint(self, serial: int, form: Form) -> None:
        """The value will be asked for: it comes from disk to host memory meanwhile."""
        self.tiers.hint(serial, self.cut(form))

    def discard(self, serial: int, form: Form) -> None:
        """A value that was put is worth nothing from now on."""
        self.tiers.discard(serial, self.cut(form))

    def holds(self, serial: int, form: Form) -> bool:
        """Whether a value of an earlier manager is whole. Raises Unreachable."""
        return self.tiers.holds(serial, self.cut(form))

    def drop(self, serial: int, form: Form) -> None:
        """A value that was never counted in is worth nothing."""
        self.tiers.drop(serial, self.cut(form))
