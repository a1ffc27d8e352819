"""What a context holds once the shape of its keys and values is known: its layers, and their sides
on the device and in the tiers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from onggi_core.wire.requests import SpaceSpec
from onggi_library.context.attention_map import AttentionMap
from onggi_library.context.boxes import Boxes
from onggi_library.context.device import DeviceSide
from onggi_library.context.errors import ContextLost
from onggi_library.context.geometry import Geometry
from onggi_library.context.layer import Layer
from onggi_library.context.memory import DeviceMemory
from onggi_library.context.names import Names
from onggi_library.context.pages import Pages, Rounded
from onggi_library.context.pieces import Spots
from onggi_library.context.report import Flow, Report, Tiers
from onggi_library.context.saved import Saved
from onggi_library.context.share import Share, Wanted, share
from onggi_library.context.store import PageStore


class Held:
    """Made by the first append, gone with a reset. Methods raise NoRoom, NotInTime and ContextLost,
    and leave what they were changing half changed then, but for crop and NotInTime."""

    def __init__(
        self,
        wanted: Wanted,
        geometry: Geometry,
        batch: int,
        device: Any,
        names: Names,
        tiers: Callable[[SpaceSpec, Pages], PageStore],
        *,
        bounds: bool,
    ) -> None:
        """bounds: whether to take those that skipping needs. Raises ValueError for a budget that is
        too small, and what `tiers` raises."""
        self._wanted = wanted
        mine = share(wanted, batch, geometry.row_bytes)
        self.geometry = geometry
        self.memory = DeviceMemory(wanted.device_bytes, device)
        self.pages = geometry.pages()
        self.store = tiers(geometry.space(), self.pages)
        self.names = names
        self.side = self._side(mine, batch)
        numbers = range(wanted.layers)
        self.boxes = [Boxes(geometry, self.side.cut) for _ in numbers] if bounds else []
        self.layers = [
            Layer(geometry, mine, batch, self.memory, names, partial(self._goes_down, number))
            for number in numbers
        ]

    @property
    def batch(self) -> int:
        return self.side.batch

    @property
    def tier_bytes(self) -> int:
        return sum(len(layer.everything()) for layer in self.layers) * self.geometry.page_bytes

    @property
    def shortest(self) -> int:
        """Tokens that every layer has: fewer than some have where an append was cut short."""
        return min(layer.length for layer in self.layers)

    def report(self, before: Flow, learned: AttentionMap) -> Report:
        memory, hot, queue = self.memory, self.side.hot, self.side.bringer.queue
        return Report(
            memory.budget_bytes,
            learned.sureness,
            self.flow(before),
            sequences=self.batch,
            tokens=self.layers[0].length,
            device_bytes=memory.used_bytes,
            device_bytes_peak=memory.peak_bytes,
            tier_bytes=self.tier_bytes,
            hot_pieces=len(hot.kept),
            hot_places=hot.places,
            metadata_bytes=self._metadata_bytes() + learned.nbytes,
            bounds_bytes=sum(boxes.nbytes for boxes in self.boxes),
            queue_bytes=queue.nbytes,
            queue_bytes_peak=queue.peak_bytes,
            rounding=replace(self.pages.rounding) if isinstance(self.pages, Rounded) else None,
        )

    def tiers(self) -> Tiers:
        """Raises ContextLost."""
        stats = self.store.stats()
        if not stats:
            raise ContextLost("the agent does not answer; nobody knows what it keeps")
        return Tiers(
            host_bytes=stats["host_used_bytes"],
            disk_bytes=stats["disk_used_bytes"],
            index_bytes=stats["index_bytes"],
            read_bytes=stats["read_bytes"],
        )

    def choose(self, learned: AttentionMap) -> None:
        """What should stay on the device from now on, by what was learned."""
        hot = self.side.hot
        if hot.places:
            spots = Spots(self.side.cut, [layer.middle_end for layer in self.layers])
            hot.want(learned.choose(spots, hot.places, hot.kept))

    def flow(self, before: Flow) -> Flow:
        """With what came by since the side was made."""
        side = self.side
        return replace(
            before,
            brought_bytes=before.brought_bytes + side.bringer.brought_bytes,
            busy_s=before.busy_s + side.lane.busy_s,
            waited_s=before.waited_s + side.lane.waited_s,
        )

    def check(self, layer: int, geometry: Geometry, keys: Any) -> None:
        """Raises ValueError for keys that are not of these sequences, or of another geometry."""
        if geometry != self.geometry or keys.shape[0] != self.batch:
            raise ValueError(
                f"layer {layer} got keys {tuple(keys.shape)} of {keys.dtype}; this context has "
                f"{self.batch} sequences and, in all layers, {self.geometry}: go on with what it "
                "was begun or saved with, or take an empty one"
            )

    # ---- changing

    def crop(self, length: int) -> None:
        for number, layer in enumerate(self.layers):
            if length < layer.length:
                layer.crop(length, self.store)
                self.side.hot.cut(number, layer.middle_end, self._wanted.block_tokens)

    def reorder(self, order: Sequence[int]) -> None:
        """For as many sequences as there are."""
        for layer in self.layers:
            layer.reorder(order)
        for boxes in self.boxes:
            boxes.reorder(order)
        self.side.hot.reorder(order, self._wanted.block_tokens)

    def select(self, order: Sequence[int]) -> None:
        """For another number of sequences. Raises ValueError with nothing changed."""
        mine = share(self._wanted, len(order), self.geometry.row_bytes)
        self.side.give_back()
        for layer in self.layers:
            layer.select(order, mine, self.store)
        self.side = self._side(mine, len(order))

    # ---- under a name

    def save(self, fields: dict[str, str | int], tokens: list[list[int]]) -> Saved:
        """Have everything in the tiers, to stay there when this ends. Raises ValueError for tokens
        that are not as many as there are."""
        lengths, there = {*map(len, tokens)}, {layer.length for layer in self.layers}
        if len(tokens) != self.batch or lengths | there != {self.layers[0].length}:
            raise ValueError(
                f"tokens are of {len(tokens)} sequences with {sorted(lengths | there)} tokens; "
                f"this context has {self.batch} with {self.layers[0].length}"
            )
        for layer in self.layers:
            layer.sweep(self.store)  # what is nobody's now is not to stay
        blocks = [layer.all_blocks(self.store) for layer in self.layers]
        self.names.keep_all()
        return Saved(fields, tokens, self.geometry, list(self.names.origins), blocks)

    def take_over(self, saved: Saved) -> None:
        for layer, rows in zip(self.layers, saved.blocks, strict=True):
            mine = [self.names.adopt(saved.origins, row) for row in rows]
            layer.take_over(mine, saved.length, self.store)

    def give_back(self) -> None:
        """Everything, here and in the tiers, but for what was saved."""
        self.side.give_back()
        for layer in self.layers:
            mine = [number for number in layer.everything() if self.names.mine(number)]
            self.store.discard(self.names.keys(mine))
            layer.give_back()
        self.store.close()

    def _goes_down(self, layer: int, first: int, rows: Any) -> None:
        """Blocks from `first` on leave the layer's tail; rows [batch, tokens, width]."""
        if self.boxes:
            self.boxes[layer].add(first, rows)
        block = self.geometry.block_tokens
        end = first + rows.shape[1] // block
        for bounds in self.side.cut.pieces(end):
            begin = max(first, bounds.first)
            if begin < bounds.end:
                part = rows[:, (begin - first) * block : (bounds.end - first) * block]
                before = (begin - bounds.first) * block
                self.side.hot.grow((layer, bounds.first), before, part)

    def _metadata_bytes(self) -> int:
        rows = {id(row): row for layer in self.layers for row in layer.known_rows()}
        return sum(map(sys.getsizeof, rows.values())) + self.side.cut.nbytes + self.side.hot.nbytes

    def _side(self, mine: Share, batch: int) -> DeviceSide:
        return DeviceSide(self.geometry, mine, batch, self.memory, self.store, self.names)
