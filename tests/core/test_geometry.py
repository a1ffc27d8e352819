"""Bytes a block takes, against figures worked out by hand."""

from __future__ import annotations

import pytest

from onggi_core.errors import BadRequest
from onggi_core.geometry import Geometry, stride

LLAMA_8B = {"layers": 32, "heads": 8, "head_size": 128, "dtype": "bfloat16", "block_tokens": 16}


@pytest.mark.parametrize(
    ("changes", "page_bytes", "block_bytes"),
    [
        ({}, 2 * 1024 * 1024, 2 * 1024 * 1024),
        ({"block_tokens": 128}, 16 * 1024 * 1024, 16 * 1024 * 1024),
        ({"ranks": 2}, 1024 * 1024, 2 * 1024 * 1024),
        ({"ranks": 16}, 256 * 1024, 4 * 1024 * 1024),
        ({"dtype": "fp8_e4m3"}, 1024 * 1024, 1024 * 1024),
        ({"dtype": "float32", "layers": 1, "heads": 1, "head_size": 1}, 128, 128),
    ],
)
def test_page_and_block_sizes(changes, page_bytes, block_bytes) -> None:
    geometry = Geometry(**{**LLAMA_8B, **changes})
    assert geometry.page_bytes == page_bytes
    assert geometry.block_bytes == block_bytes


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"layers": 0}, "layers"), ({"dtype": "fp64"}, "dtype"), ({"ranks": 3}, "ranks")],
)
def test_an_impossible_shape_is_refused_by_field(changes, field) -> None:
    with pytest.raises(BadRequest) as error:
        Geometry(**{**LLAMA_8B, **changes})
    assert error.value.field == field


@pytest.mark.parametrize(("page", "room"), [(1, 4096), (4096, 4096), (4097, 8192)])
def test_pages_begin_on_multiples_of_4_kib(page, room) -> None:
    assert stride(page) == room
