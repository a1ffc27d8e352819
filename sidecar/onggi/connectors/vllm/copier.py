"""Copies between the engine's blocks and arena pages, for blocks in host memory.

The same three verbs exist for CUDA in onggi.cuda_pages: the worker does not care which it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from onggi.arena import Arena
from onggi.connectors.vllm.layered import host_load
from onggi.connectors.vllm.layout import PageMap
from onggi.connectors.vllm.metadata import Block

Pair = tuple[Block, int]
"""(block, arena offset of its page)."""


class Load(Protocol):
    """Pages on their way into blocks, layer by layer."""

    def help(self) -> None:
        """Bring what is left, if a thread can. May be called on any thread."""

    def wait(self, layer: int) -> None:
        """On the engine's thread: what it does next with this layer finds the layer's bytes,
        unless end() tells otherwise."""

    def end(self) -> bool:
        """Wait for all layers. False: the arena was taken back, what came is worth nothing."""


class Copier(Protocol):
    """Moves whole pages. False: the arena was taken back, so the copy is worth nothing."""

    def mark(self) -> Any:
        """A point in the engine's work: what is written to blocks up to here may be copied once
        it has passed. Handed back to copy_in."""

    def copy_in(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        """Blocks to arena; returns when the bytes are there. May be called on any thread."""

    def copy_out(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        """Arena to blocks, behind what still uses them; returns when the bytes are there. May be
        called on any thread."""


class LayerCopier(Copier, Protocol):
    """One that can bring a page's layers one after the other."""

    def load(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> Load:
        """As copy_out, without waiting for the layers."""


class HostCopier:
    """Blocks in host memory: the forward pass is over when the worker's hooks run, so there is
    nothing to wait for."""

    def __init__(self, pages: PageMap) -> None:
        self._pages = pages

    def mark(self) -> None:
        return None

    def copy_in(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:  # noqa: ARG002
        return arena.copy_in(self._pages.pieces(pairs))

    def copy_out(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:  # noqa: ARG002
        return arena.copy_out(self._pages.pieces(pairs))

    def load(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> Load:  # noqa: ARG002
        return host_load(arena, self._pages, pairs)


class GroupsCopier:
    """Pages that hold blocks of several groups one behind the other. A block of it is a tuple: the
    number in each group."""

    def __init__(self, groups: Sequence[Copier]) -> None:
        """groups: for each a copier that knows where in the page its part lies."""
        self._groups = groups

    def mark(self) -> Any:
        return self._groups[0].mark()

    def copy_in(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        parts = self._parts(pairs)
        return all(
            group.copy_in(arena, part, after)
            for group, part in zip(self._groups, parts, strict=True)
        )

    def copy_out(self, arena: Arena, pairs: Iterable[Pair], after: Any) -> bool:
        parts = self._parts(pairs)
        return all(
            group.copy_out(arena, part, after)
            for group, part in zip(self._groups, parts, strict=True)
        )

    def _parts(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        pairs = list(pairs)
        return [[(blocks[n], at) for blocks, at in pairs] for n in range(len(self._groups))]
