"""Pieces of the middle that stay on the device, within what the budget has left for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from onggi_library.context.attention_map import Spot
from onggi_library.context.layer import shuffle
from onggi_library.context.memory import DeviceMemory

SPOT_BYTES: Final = 256
"""A piece's name, and where it is."""


class HotPieces:
    """Places of one piece each; which pieces are wanted is said from outside."""

    def __init__(
        self, memory: DeviceMemory, places: int, shape: tuple[int, int, int], dtype: Any
    ) -> None:
        """shape: of a place, [batch, tokens of the longest piece, width]."""
        self.places = places
        self._memory = memory
        self._shape = shape
        self._dtype = dtype
        self._there: dict[Spot, tuple[Any, int]] = {}
        self._free: list[Any] = []
        self._made = 0
        self._wanted: set[Spot] = set()

    @property
    def kept(self) -> list[Spot]:
        return list(self._there)

    @property
    def nbytes(self) -> int:
        """What is known of the pieces that are here, or wanted here."""
        return SPOT_BYTES * (len(self._there) + len(self._wanted))

    def want(self, spots: Iterable[Spot]) -> None:
        """These should stay when they come by next; others go now. At most as many as places."""
        self._wanted = set(spots)
        for spot in [spot for spot in self._there if spot not in self._wanted]:
            self._drop(spot)

    def get(self, spot: Spot, tokens: int) -> Any:
        """Rows [batch, tokens, width] of a piece that has so many by now, or None."""
        place, there = self._there.get(spot, (None, 0))
        return place[:, :tokens] if place is not None and there == tokens else None

    def offer(self, spot: Spot, rows: Any) -> None:
        """A piece comes by, as long as it is now; it is copied if it is wanted."""
        if (
            spot in self._wanted
            and spot not in self._there
            and (place := self._place()) is not None
        ):
            place[:, : rows.shape[1]].copy_(rows)
            self._there[spot] = (place, rows.shape[1])

    def grow(self, spot: Spot, before: int, rows: Any) -> None:
        """A piece that had so many tokens gets these. It grows where it is; one that begins is
        kept if there is a place that nobody wants."""
        place, there = self._there.get(spot, (None, 0))
        if place is None and before == 0 and len(self._wanted) < self.places:
            place = self._place()
            self._wanted.add(spot)
        if place is not None and there == before:
            place[:, before : before + rows.shape[1]].copy_(rows)
            self._there[spot] = (place, before + rows.shape[1])

    def cut(self, layer: int, end: int, block_tokens: int) -> None:
        """What the layer has behind block `end` is gone."""
        for spot, (place, tokens) in list(self._there.items()):
            if spot[0] == layer:
                left = min(tokens, (end - spot[1]) * block_tokens)
                self._there[spot] = (place, left)
                if left <= 0:
                    self._drop(spot)

    def reorder(self, order: Sequence[int], step: int) -> None:
        for place, tokens in self._there.values():
            shuffle(place, tokens, order, step)

    def give_back(self) -> None:
        """The device's memory; nothing may be used any more."""
        for place, _ in self._there.values():
            self._memory.give_back(place)
        for place in self._free:
            self._memory.give_back(place)
        self._there.clear()
        self._free.clear()
        self._made = self.places = 0

    def _place(self) -> Any:
        if self._free:
            return self._free.pop()
        if self._made == self.places:
            return None
        self._made += 1
        return self._memory.take(self._shape, self._dtype)

    def _drop(self, spot: Spot) -> None:
        place, _ = self._there.pop(spot)
        self._free.append(place)
