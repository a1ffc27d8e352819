"""A keyspace: the blocks of one fingerprint, and what all of its pages have in common."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from onggi_core.geometry import stride
from onggi_core.index.ids import as_run
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

    __slots__ = ("group", "ids", "number", "segments", "spec", "stride_bytes", "tag")

    def __init__(
        self,
        number: int,
        tag: int,
        spec: SpaceSpec,
        group: int,
        ids: dict[bytes, int],
        ends: Sequence[int],
    ) -> None:
        self.number = number
        self.tag = tag
        self.spec = spec
        self.group = group
        self.ids = ids
        """Key -> block; the index's own."""
        self.stride_bytes = stride(spec.page_bytes)
        self.segments = Segments(spec.block_tokens, ends)

    def known(self, keys: Sequence[bytes]) -> Sequence[int]:
        """The blocks of the leading keys that have one, known by name alone included."""
        found: list[int | None] = list(map(self.ids.get, keys))
        if None in found:
            del found[found.index(None) :]
        return as_run(found)  # type: ignore[arg-type]  # no None is left
