"""What a context has on the device for a number of sequences, beside what its layers hold: two
places for pieces in flight, and those that stay."""

from __future__ import annotations

from onggi_library.context.geometry import Geometry
from onggi_library.context.hot import HotPieces
from onggi_library.context.lane import lane_for
from onggi_library.context.memory import DeviceMemory
from onggi_library.context.names import Names
from onggi_library.context.pieces import Cut
from onggi_library.context.share import Share
from onggi_library.context.source import Bringer
from onggi_library.context.store import PageStore


class DeviceSide:
    """Made anew when the number of sequences changes."""

    def __init__(
        self,
        geometry: Geometry,
        share: Share,
        batch: int,
        memory: DeviceMemory,
        store: PageStore,
        names: Names,
    ) -> None:
        self.share = share
        self.batch = batch
        self.cut = Cut(geometry.block_tokens, share.sinks, share.piece)
        shape = (batch, share.piece * geometry.block_tokens, geometry.width)
        self.firsts: dict[int, int | None] = {}
        """By layer, the number of the piece that was brought first the last time."""
        self._memory = memory
        self._places = (memory.take(shape, geometry.dtype), memory.take(shape, geometry.dtype))
        self.lane = lane_for(self._places)
        self.bringer = Bringer(geometry, store, names, self.lane)
        self.hot = HotPieces(memory, share.hot, shape, geometry.dtype)

    def give_back(self) -> None:
        """Waits for what is on its way; nothing may be used any more."""
        self.lane.close()
        self.hot.give_back()
        for place in self._places:
            self._memory.give_back(place)
