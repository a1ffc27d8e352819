"""How rows of a context lie in the pages of the tiers: as they are, or rounded to int8."""

from __future__ import annotations

from typing import Any, Final, Protocol

import torch

from onggi_library.rounding import Rounding, give_back, round_off

PART_ELEMENTS: Final = 1 << 20
"""Rounded at a time: 4 MiB in float32, whatever the length of what goes down."""


class Pages(Protocol):
    """rows: [tokens, width], a page after the other. Pages are in host memory."""

    def of(self, rows: Any, count: int) -> Any:
        """So many pages with the rows, uint8 or of the rows' own dtype: [count, ..]."""
        ...

    def room_for(self, rows: Any, count: int) -> Any:
        """Where so many pages are to be loaded to,"""
        ...

    def give(self, pages: Any, rows: Any) -> None:
        """and then into the rows, if that is not where they are."""
        ...


class Plain:
    """Bit for bit. Pages are loaded into the rows themselves."""

    def of(self, rows: Any, count: int) -> Any:
        return rows.contiguous().cpu().view(count, -1)

    def room_for(self, rows: Any, count: int) -> Any:
        return rows.view(count, -1)

    def give(self, pages: Any, rows: Any) -> None:
        """They are there."""


class Rounded:
    """A page is its scales, float32 [width], and then int8 [tokens, width]: each channel of each
    block has a scale of its own."""

    def __init__(self, tokens: int, width: int) -> None:
        """tokens: of a page."""
        self._tokens = tokens
        self._width = width
        self.rounding = Rounding()

    @staticmethod
    def page_bytes(tokens: int, width: int) -> int:
        """A multiple of what a scale takes, so that all scales can be seen where they lie."""
        return 4 * width + -(-tokens * width // 4) * 4

    def of(self, rows: Any, count: int) -> Any:
        page_bytes = self.page_bytes(self._tokens, self._width)
        pages = torch.zeros(count, page_bytes, dtype=torch.uint8, device="cpu")
        blocks = rows.reshape(count, self._tokens, self._width)
        for begin, end in self._parts(count):
            rounded, scales = round_off(blocks[begin:end], self.rounding)
            into, into_scales = self._inside(pages[begin:end])
            into.copy_(rounded)
            into_scales.copy_(scales)
        return pages

    def room_for(self, rows: Any, count: int) -> Any:  # noqa: ARG002
        page_bytes = self.page_bytes(self._tokens, self._width)
        return torch.empty(count, page_bytes, dtype=torch.uint8, device="cpu")

    def give(self, pages: Any, rows: Any) -> None:
        blocks = rows.view(len(pages), self._tokens, self._width)
        for begin, end in self._parts(len(pages)):
            give_back(*self._inside(pages[begin:end]), blocks[begin:end])

    def _inside(self, pages: Any) -> tuple[Any, Any]:
        """int8 [pages, tokens, width] and float32 [pages, 1, width]: views."""
        cut, end = 4 * self._width, 4 * self._width + self._tokens * self._width
        rounded = pages[:, cut:end].view(torch.int8).unflatten(1, (self._tokens, self._width))
        return rounded, pages[:, :cut].view(torch.float32).unsqueeze(1)

    def _parts(self, count: int) -> list[tuple[int, int]]:
        step = max(1, PART_ELEMENTS // (self._tokens * self._width))
        return [(begin, min(count, begin + step)) for begin in range(0, count, step)]
