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
from onggi_library.context.pages import Pages, Plain, Rounded
from onggi_library.rounding import EXACT, INT8, check_dtype, check_lower


@dataclass(frozen=True)
class Geometry:
    """What keys [batch, kv_heads, tokens, head_size] and values [.., value_size] look like."""

    kv_heads: int
    head_size: int
    value_size: int
    dtype: Any
    block_tokens: int
    lower: str = EXACT

    @property
    def width(self) -> int:
        """Elements of one token."""
        return self.kv_heads * (self.head_size + self.value_size)

    @property
    def row_bytes(self) -> int:
        return self.width * int(torch.empty((), dtype=self.dtype).element_size())

    @property
    def page_bytes(self) -> int:
        if self.lower == INT8:
            return Rounded.page_bytes(self.block_tokens, self.width)
        return self.row_bytes * self.block_tokens

    def pages(self) -> Pages:
        return Rounded(self.block_tokens, self.width) if self.lower == INT8 else Plain()

    def space(self) -> SpaceSpec:
        """Where its pages are kept."""
        mark = fingerprint({"library": "rows-1", **self.fields()})
        return SpaceSpec(mark, self.page_bytes, self.block_tokens)

    def fields(self) -> dict[str, str | int]:
        """What keeps rows of one shape apart from those of others. That they are exact is not said:
        so were all before there was a choice."""
        rounded: dict[str, str | int] = {} if self.lower == EXACT else {"lower": self.lower}
        return {
            **rounded,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "value_size": self.value_size,
            "dtype": str(self.dtype).removeprefix("torch."),
            "block_tokens": self.block_tokens,
        }

    def check(self, block_tokens: int, lower: str) -> None:
        """Raises ValueError if that is not how rows of this geometry are kept."""
        if (self.block_tokens, self.lower) != (block_tokens, lower):
            raise ValueError(
                f"block_tokens is {block_tokens} and lower is {lower!r}; what was saved has blocks "
                f"of {self.block_tokens} and is {self.lower!r}: use those"
            )

    def check_queries(self, queries: Any, batch: int, length: int) -> None:
        """Raises ValueError for queries that cannot ask what has this geometry."""
        shape, heads = tuple(queries.shape), self.kv_heads
        fits = len(shape) == 4 and shape[0] == batch and shape[3] == self.head_size
        if not fits or not shape[1] or shape[1] % heads or not 0 < shape[2] <= length:
            raise ValueError(
                f"queries are {shape}; use [{batch}, heads, tokens, {self.head_size}], with a "
                f"multiple of {heads} heads, of up to the {length} tokens that were appended"
            )
        if queries.dtype != self.dtype:
            raise ValueError(f"queries are {queries.dtype}; use {self.dtype}, as keys and values")

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


def check_exactness(lower: str, epsilon: float) -> None:
    """Raises ValueError for what is no such setting."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise TypeError(f"epsilon is {epsilon!r:.60}; use a number from 0 to less than 1")
    if not 0.0 <= epsilon < 1.0:
        raise ValueError(f"epsilon is {epsilon}; a share of attention, from 0 to less than 1")
    check_lower(lower)
    if lower != EXACT and epsilon > 0.0:
        raise ValueError(
            f"lower is {lower!r} and epsilon is {epsilon}: bounds are of keys that are exact; use "
            "one of the two"
        )


def geometry_of(keys: Any, values: Any, block_tokens: int, lower: str) -> Geometry:
    """Of what is appended. Raises TypeError and ValueError for what are no keys and values of one
    layer."""
    for name, rows in (("keys", keys), ("values", values)):
        if not isinstance(rows, torch.Tensor):
            raise TypeError(f"{name} is a {type(rows).__name__}; use a tensor")
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
    if lower == INT8:
        check_dtype("the dtype of keys and values", keys.dtype)
    _, heads, _, size = keys.shape
    return Geometry(heads, size, values.shape[-1], keys.dtype, block_tokens, lower)
