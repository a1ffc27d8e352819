"""Where the bytes of a block lie in the engine's KV tensors, by address.

A page holds one block of one rank: the block's bytes of each layer, in the order of the layers.
Bytes are moved as they are and never looked into: on CPU they are packed for the instruction set,
and views of them are permuted, so only whole pages have a meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onggi.copies import Piece


class LayoutUnsupported(Exception):
    """These tensors cannot be addressed as whole pages. The message says which and why."""


@dataclass(frozen=True)
class Run:
    """A stretch of one layer's part of a block. Block b's bytes are at address + b * stride."""

    address: int
    stride: int
    nbytes: int
    offset: int
    """Where they go in the page."""
    layer: int = 0
    """Number of the layer, in the order of the page."""


@dataclass(frozen=True)
class PageMap:
    """The runs that make up a page, and the page's size. layers: their names, in that order. Where
    another map's runs come first in the page, page_bytes reaches to the end of this one's."""

    runs: tuple[Run, ...]
    page_bytes: int
    blocks: int
    layers: tuple[str, ...] = ("",)

    def pieces(
        self, pages: Iterable[tuple[int, int]], runs: Sequence[Run] | None = None
    ) -> list[Piece]:
        """Copies for (block id, arena offset) pairs, of all runs or only of these. Raises
        ValueError for a block that is not there: an address made from it would be somebody else's
        memory."""
        wanted = self.runs if runs is None else runs
        pieces: list[Piece] = []
        for block, at in pages:
            if not 0 <= block < self.blocks:
                raise ValueError(f"block {block} is outside the {self.blocks} of this engine")
            pieces += [
                (at + run.offset, run.address + block * run.stride, run.nbytes) for run in wanted
            ]
        return pieces

    def by_layer(self) -> tuple[tuple[Run, ...], ...]:
        """The runs of each layer, in the order of the layers."""
        return tuple(
            tuple(run for run in self.runs if run.layer == number)
            for number in range(len(self.layers))
        )


def page_map(
    tensors: Mapping[str, Any], layers: Sequence[str], blocks: int, begin: int = 0
) -> PageMap:
    """From the engine's logical views [kernel blocks, heads, tokens, content], one a layer. begin:
    where in the page they go.

    An engine may cut a block into several kernel blocks; they lie side by side in dimension 0.
    Raises LayoutUnsupported unless each block's bytes of a layer are one run, or one for each
    kernel block.
    """
    runs: list[Run] = []
    offset = begin
    for number, layer in enumerate(layers):
        tensor = tensors.get(layer)
        if tensor is None:
            raise LayoutUnsupported(f"layer {layer} has no KV tensor")
        for run in _runs(layer, tensor, blocks, offset, number):
            runs.append(run)
            offset += run.nbytes
    if not runs:
        raise LayoutUnsupported("no layer has a KV tensor")
    return PageMap(tuple(runs), offset, blocks, tuple(layers))


def _runs(layer: str, tensor: Any, blocks: int, offset: int, number: int) -> list[Run]:
    shape, strides, item = tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size()
    if not shape or shape[0] % blocks or shape[0] < blocks:
        raise LayoutUnsupported(f"{layer} has shape {shape} for {blocks} blocks")
    inner = item
    for size in shape[1:]:
        inner *= size
    if _extent(shape[1:], strides[1:]) * item != inner:
        raise LayoutUnsupported(
            f"a block of {layer} is not one run: shape {shape}, strides {strides}"
        )
    kernel_blocks, step = shape[0] // blocks, strides[0] * item
    address = tensor.data_ptr()
    if step == inner:
        return [Run(address, kernel_blocks * inner, kernel_blocks * inner, offset, number)]
    return [
        Run(address + n * step, kernel_blocks * step, inner, offset + n * inner, number)
        for n in range(kernel_blocks)
    ]


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one of a view, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
