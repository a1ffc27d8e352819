"""How many bytes a block takes on one rank, from the shape of the model.

An engine that knows its page size says so; this is for those who plan a pool or write a cache of
their own, and it is what the connectors check the engine's figure against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onggi_core.errors import BadRequest

DTYPE_BYTES: Final = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
}
KV: Final = 2
"""Keys and values."""

ALIGN_BYTES: Final = 4096
"""Pages begin on multiples of this in the arena and on disk: what O_DIRECT asks for."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of one model's KV cache. heads counts KV heads of the whole model."""

    layers: int
    heads: int
    head_size: int
    dtype: str
    block_tokens: int
    ranks: int = 1
    """Tensor-parallel size. With more ranks than heads each rank holds one head (a replica)."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "head_size", "block_tokens", "ranks"):
            if getattr(self, name) < 1:
                raise BadRequest(name, getattr(self, name), "use 1 or more")
        if self.dtype not in DTYPE_BYTES:
            raise BadRequest("dtype", self.dtype, f"use one of {', '.join(DTYPE_BYTES)}")
        if self.heads % self.ranks and self.ranks % self.heads:
            raise BadRequest("ranks", self.ranks, f"it must divide the {self.heads} heads")

    @property
    def heads_per_rank(self) -> int:
        return max(1, self.heads // self.ranks)

    @property
    def token_bytes(self) -> int:
        """Bytes one token takes on one rank, all layers."""
        per_layer = KV * self.heads_per_rank * self.head_size * DTYPE_BYTES[self.dtype]
        return self.layers * per_layer

    @property
    def page_bytes(self) -> int:
        """Bytes of one block on one rank."""
        return self.token_bytes * self.block_tokens

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all ranks: what it costs a pod."""
        return self.page_bytes * self.ranks


def stride(page_bytes: int) -> int:
    """The room a page takes in a tier: its bytes rounded up to ALIGN_BYTES."""
    return -(-page_bytes // ALIGN_BYTES) * ALIGN_BYTES
