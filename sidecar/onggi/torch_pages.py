"""Blocks that lie in torch tensors: store and load them by tensor, on the CPU or on a CUDA device.

`client.store` and `client.load` take CPU tensors themselves. This adds the device: one interface
for both, so that a cache of your own need not care. The CUDA half is onggi.cuda_pages, which says
how far it has been tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onggi import checks
from onggi.client import Client
from onggi.cuda_pages import CudaCopier
from onggi.outcomes import Stored
from onggi_core.identity import ROOT
from onggi_core.wire.requests import LoadOutcome, StoreOutcome


@dataclass(frozen=True)
class _WholePage:
    nbytes: int
    offset: int = 0
    layer: int = 0


class TorchPages:
    """A cache whose block b is pages[b]: one tensor [blocks, ...], contiguous, of page_bytes each.

    Keep the tensor alive as long as this object.
    """

    def __init__(self, client: Client, pages: Any, *, space: int = 0, torch: Any = None) -> None:
        """Raises ValueError for a tensor that is not contiguous or of another page size, TypeError
        for what is no tensor of blocks."""
        if torch is None:
            import torch as real_torch

            torch = real_torch
        checks.space_number(space, client.spaces)
        page_bytes = client.spaces[space].page_bytes
        if not isinstance(pages, torch.Tensor) or not pages.dim():
            kind = type(pages).__name__
            raise TypeError(f"pages is a {kind}; hand in a tensor of shape [blocks, ...]")
        blocks = pages.shape[0]
        size = pages.numel() * pages.element_size()
        if not pages.is_contiguous():
            raise ValueError(f"pages has strides {pages.stride()}; hand in a contiguous tensor")
        if blocks < 1 or size != blocks * page_bytes:
            raise ValueError(
                f"pages is {pages.dtype} of shape {tuple(pages.shape)}, {size} bytes for {blocks} "
                f"blocks; this space has pages of {page_bytes}: hand in the shape and dtype that "
                "page_bytes was counted of"
            )
        self._client = client
        self._space = space
        self._bytes = pages.view(blocks, -1).view(torch.uint8)
        self._copier: CudaCopier | None = None
        if pages.device.type == "cuda":
            self._copier = CudaCopier([self._bytes], [_WholePage(page_bytes)], torch)

    def store(
        self, keys: Sequence[bytes], blocks: Sequence[int], *, parent: bytes = ROOT
    ) -> Stored:
        """Keep the blocks with these numbers under these keys, a chain that follows `parent`."""
        self._check(keys, blocks)
        if self._copier is None:
            rows = [self._bytes[block] for block in blocks]
            return self._client.store(keys, rows, parent=parent, space=self._space)
        ticket = self._client.store_prepare(keys, parent=parent, space=self._space)
        sealed = 0
        if ticket.granted:
            pages, outcome = ticket.pages(), StoreOutcome.ABANDONED
            try:
                arena = self._client.arena(pages)
                chosen = [blocks[n] for n in ticket.granted]
                pairs = zip(chosen, pages.offsets, strict=True)
                if arena is not None and self._copier.copy_in(arena, pairs, self._copier.mark()):
                    outcome = StoreOutcome.SEALED
            finally:
                sealed = self._client.finish_store(ticket, outcome)
        return Stored(sealed, ticket.existing, len(keys) - sealed - ticket.existing)

    def load(self, keys: Sequence[bytes], blocks: Sequence[int], *, wait_s: float = 0.0) -> int:
        """Fill blocks from the longest leading run of keys; returns its length."""
        self._check(keys, blocks)
        if self._copier is None:
            rows = [self._bytes[block] for block in blocks]
            return self._client.load(keys, rows, wait_s=wait_s, space=self._space)
        load = self._client.load_prepare(keys, wait_s=wait_s).wait(wait_s + self._client.deadline_s)
        done = 0
        try:
            arena = self._client.arena(load.pages(self._space)) if load.blocks else None
            if arena is not None:
                pairs = zip(blocks, load.pages(self._space).offsets, strict=False)
                if self._copier.copy_out(arena, pairs, self._copier.mark()):
                    done = load.blocks
        finally:
            outcome = LoadOutcome.LOADED if done else LoadOutcome.FAILED
            self._client.finish_load(load, outcome, blocks=done)
        return done

    def _check(self, keys: Sequence[bytes], blocks: Sequence[int]) -> None:
        """A tensor would take -1 for its last block."""
        wanted, given, most = (
            checks.keys_of(keys),
            checks.counted("blocks", blocks),
            len(self._bytes),
        )
        if given != wanted:
            raise ValueError(f"blocks has {given} entries for {wanted} keys; use one each")
        for block in blocks:
            if not 0 <= checks.whole("blocks", block) < most:
                raise ValueError(f"blocks has {block}; pages has {most} blocks, from 0")
