"""Addresses of pages in the engine's tensors, without a tensor: shape and strides are enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onggi.connectors.vllm.layout import LayoutUnsupported, page_map
from onggi.copies import merged
from onggi_core.arena_header import COPY_MAX_BYTES

BLOCKS, HEADS, TOKENS, CONTENT, ITEM = 6, 2, 16, 8, 2
INNER = HEADS * TOKENS * CONTENT * ITEM


def tensor(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return SimpleNamespace(
        shape=shape,
        stride=lambda: strides,
        element_size=lambda: ITEM,
        data_ptr=lambda: address,
    )


def views(order: str, layers: int = 3, kernel_blocks: int = 1) -> dict[str, Any]:
    """Logical [blocks, heads, tokens, content] views of one allocation in a physical order."""
    sizes = {
        "L": layers,
        "B": BLOCKS * kernel_blocks,
        "H": HEADS,
        "N": TOKENS // kernel_blocks,
        "C": CONTENT,
    }
    strides, step = {}, 1
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
    shape = tuple(sizes[axis] for axis in "BHNC")
    inner = tuple(strides[axis] for axis in "BHNC")
    return {
        f"l{n}": tensor(1_000_000 + n * strides["L"] * ITEM, shape, inner) for n in range(layers)
    }


@pytest.mark.parametrize("order", ["LBHNC", "LBNHC"])
def test_layers_outermost_give_one_piece_a_layer(order: str) -> None:
    pages = page_map(views(order), ["l0", "l1", "l2"], BLOCKS)
    assert pages.page_bytes == 3 * INNER
    layer = BLOCKS * INNER
    assert pages.pieces([(2, 5000)]) == [
        (5000 + n * INNER, 1_000_000 + n * layer + 2 * INNER, INNER) for n in range(3)
    ]


@pytest.mark.parametrize("order", ["BLHNC", "BLNHC"])
def test_blocks_outermost_give_one_copy_a_block(order: str) -> None:
    pages = page_map(views(order), ["l0", "l1", "l2"], BLOCKS)
    whole = 3 * INNER
    assert merged(pages.pieces([(2, 5000)])) == [(5000, 1_000_000 + 2 * whole, whole)]
    run = [(n, 5000 + n * whole) for n in range(1, 4)]
    assert merged(pages.pieces(run)) == [(5000 + whole, 1_000_000 + whole, 3 * whole)]


@pytest.mark.parametrize("order", ["LHBNC", "BHLNC"])
def test_a_block_in_many_runs_is_refused(order: str) -> None:
    with pytest.raises(LayoutUnsupported, match="l0 is not one run"):
        page_map(views(order), ["l0"], BLOCKS)


def test_kernel_blocks_of_a_block_stay_together() -> None:
    pages = page_map(views("LBHNC", kernel_blocks=4), ["l0", "l1"], BLOCKS)
    assert pages.page_bytes == 2 * INNER
    assert pages.pieces([(1, 0)])[0] == (0, 1_000_000 + INNER, INNER)
    pages = page_map(views("BLHNC", kernel_blocks=4), ["l0", "l1"], BLOCKS)
    assert pages.page_bytes == 2 * INNER
    assert sorted(length for _, _, length in pages.pieces([(1, 0)])) == [INNER // 4] * 8
    addresses = [address for _, address, _ in pages.pieces([(1, 0)])]
    assert min(addresses) == 1_000_000 + 3 * INNER  # the allocation has three layers
    assert len(set(addresses)) == 8


def test_every_byte_of_the_cache_belongs_to_one_block() -> None:
    for order in ("LBHNC", "BLNHC"):
        for kernel_blocks in (1, 2):
            cache = views(order, kernel_blocks=kernel_blocks)
            pages = page_map(cache, ["l0", "l1", "l2"], BLOCKS)
            seen: set[int] = set()
            for block in range(BLOCKS):
                for _, address, length in pages.pieces([(block, 0)]):
                    mine = set(range(address, address + length))
                    assert not mine & seen
                    seen |= mine
            assert len(seen) == 3 * INNER * BLOCKS


def test_wrong_tensors_and_blocks_are_named() -> None:
    with pytest.raises(LayoutUnsupported, match="layer l9 has no KV tensor"):
        page_map(views("LBHNC"), ["l9"], BLOCKS)
    with pytest.raises(LayoutUnsupported, match=r"has shape \(6, .* for 4 blocks"):
        page_map(views("LBHNC"), ["l0"], 4)
    pages = page_map(views("LBHNC"), ["l0"], BLOCKS)
    with pytest.raises(ValueError, match="block 6 is outside the 6"):
        pages.pieces([(6, 0)])


def test_copies_are_joined_up_to_a_bound() -> None:
    half = COPY_MAX_BYTES // 2
    assert merged([(0, 100, half), (half, 100 + half, half), (2 * half, 100 + 2 * half, 1)]) == [
        (0, 100, 2 * half),
        (2 * half, 100 + 2 * half, 1),
    ]
    assert merged([]) == []
    assert merged([(0, 0, 4), (4, 5, 4)]) == [(0, 0, 4), (4, 5, 4)]
