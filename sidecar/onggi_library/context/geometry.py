"""The shape of what a token leaves in one layer, and how it lies in a row of bytes.

A row is one token: the keys of all heads, then the values of all heads. Rows of one block make a
page, and pages that are laid side by side are rows again: so pieces need no rearranging once they
are on the device, whatever their number of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from onggi_core.identity import fingerprint
from onggi_core.wire.requests import SpaceSpec


@dataclass(frozen=True)
class Geometry:
    """What keys [batch, kv_heads, tokens, head_size] and values [.., value_size] look like."""

    kv_heads: int
    head_size: int
    value_size: int
    dtype: Any
    block_tokens: int

    @property
    def width(self) -> int:
        """Elements of one token."""
        return self.kv_heads * (self.head_size + self.value_size)

    @property
    def row_bytes(self) -> int:
        return self.width * int(torch.empty((), dtype=self.dtype).element_size())

    @property
    def page_bytes(self) -> int:
        return self.row_bytes * self.block_tokens

    def space(self) -> SpaceSpec:
        """Where its pages are kept."""
        mark = fingerprint({"library": "rows-1", **self.fields()})
        return SpaceSpec(mark, self.page_bytes, self.block_tokens)

    def fields(self) -> dict[str, str | int]:
        return {
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "value_size": self.value_size,
            "dtype": str(self.dtype).removeprefix("torch."),
            "block_tokens": self.block_tokens,
        }

    def fill(self, rows: Any, keys: Any, values: Any) -> None:
        """Write keys and values into rows [batch, tokens, width]."""
        into_keys, into_values = self.parts(rows)
        into_keys.copy_(keys)
        into_values.copy_(values)

    def parts(self, rows: Any) -> tuple[Any, Any]:
        """Keys and values, [batch, kv_heads, tokens, size] each, that lie in rows [batch, tokens,
        width]: views."""
        cut = self.kv_heads * self.head_size
        keys = rows[..., :cut].unflatten(-1, (self.kv_heads, self.head_size))
        values = rows[..., cut:].unflatten(-1, (self.kv_heads, self.value_size))
        return keys.transpose(1, 2), values.transpose(1, 2)


def geometry_of(keys: Any, values: Any, block_tokens: int) -> Geometry:
    """Of what is appended. Raises ValueError for what are no keys and values of one layer."""
    if keys.dim() != 4 or values.dim() != 4 or keys.shape[:3] != values.shape[:3]:
        raise ValueError(
            f"keys are {tuple(keys.shape)} and values {tuple(values.shape)}; both should be "
            "[batch, kv heads, tokens, size], alike but for the last"
        )
    if keys.dtype != values.dtype or keys.device != values.device:
        raise ValueError(
            f"keys are {keys.dtype} on {keys.device} and values {values.dtype} on {values.device}; "
            "both should be of one dtype on one device"
        )
    _, heads, _, size = keys.shape
    return Geometry(heads, size, values.shape[-1], keys.dtype, block_tokens)
