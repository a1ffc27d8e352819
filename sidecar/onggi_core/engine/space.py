"""A keyspace: the blocks of one fingerprint, and what all of its pages have in common."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from onggi_core.geometry import stride
from onggi_core.index.keytable import KeyTable
from onggi_core.segments import Segments
from onggi_core.wire.requests import SpaceSpec


class TierName(enum.Enum):
    HOST = "host"
    DISK = "disk"


class Space:
    """Keys of one space never meet those of another: a different fingerprint can only miss.

    number: its row in the index. tag: its number on the board, never given to another space. group:
    the same for all spaces whose pages take the same room.
    """

    __slots__ = (
        "find",
        "group",
        "known",
        "number",
        "segments",
        "spec",
        "stride_bytes",
        "table",
        "tag",
    )

    def __init__(
        self, table: KeyTable, tag: int, spec: SpaceSpec, group: int, ends: Sequence[int]
    ) -> None:
        self.number = table.number
        self.tag = tag
        self.spec = spec
        self.group = group
        self.table = table
        """Key -> block; the index's own."""
        self.find = table.find
        self.known = table.known
        self.stride_bytes = stride(spec.page_bytes)
        self.segments = Segments(spec.block_tokens, ends)
