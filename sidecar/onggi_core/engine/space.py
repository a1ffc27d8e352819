"""A keyspace: the blocks of one fingerprint, with their ranking in each tier."""

from __future__ import annotations

import enum

from onggi_core.geometry import stride
from onggi_core.page import Block
from onggi_core.policy.leaf_lru import LeafFirstLru
from onggi_core.wire.requests import SpaceSpec


class TierName(enum.Enum):
    HOST = "host"
    DISK = "disk"


class Space:
    """Keys of one space never meet those of another: a different fingerprint can only miss."""

    __slots__ = ("_disk", "_host", "blocks", "number", "spec", "stride_bytes")

    def __init__(self, number: int, spec: SpaceSpec) -> None:
        self.number = number
        self.spec = spec
        self.stride_bytes = stride(spec.page_bytes)
        self.blocks: dict[bytes, Block] = {}
        self._host = LeafFirstLru()
        self._disk = LeafFirstLru()

    def ranking(self, tier: TierName) -> LeafFirstLru:
        return self._host if tier is TierName.HOST else self._disk

    def block(self, key: bytes, parent: bytes) -> Block:
        """The block of this key, made if it is not known."""
        found = self.blocks.get(key)
        if found is None:
            found = self.blocks[key] = Block(key, parent)
        return found

    def forget_if_nowhere(self, block: Block) -> None:
        """Drops the record of a block that no tier holds."""
        if block.host is None and block.disk is None:
            self.blocks.pop(block.key, None)
