"""The pages of one tier, by the block each holds: where it lies and where in its life it is."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import rshift
from typing import Final

from onggi_core.errors import IllegalMove
from onggi_core.index.counting import in_a_row
from onggi_core.index.places import Places
from onggi_core.page import AFTER, ILLEGAL, READABLE, PageEvent, PageState, move

UNIT_BITS: Final = 12
"""Places are kept in units of 4 KiB: four bytes a block reach 16 TiB."""

_READABLE: Final = bytes(sorted(READABLE))
_CROWDED: Final = 255
"""Pins kept in one byte a block; the few blocks with as many or more are in a dict as well."""
_ONE_MORE: Final = bytes([*range(1, 256), _CROWDED])


class Pages:
    """Columns by block. Every change of state goes through the table of moves: an illegal one
    raises IllegalMove and changes nothing."""

    __slots__ = ("_crowded", "pins", "places", "states")

    def __init__(self) -> None:
        self.states = bytearray()
        self.pins = bytearray()
        self.places = array("I")
        self._crowded: dict[int, int] = {}
        """Blocks with 255 pins or more -> how many."""

    def grow(self, count: int) -> None:
        self.states += bytes(count)
        self.pins += bytes(count)
        self.places.frombytes(bytes(count * self.places.itemsize))

    def on(self, block: int, event: PageEvent) -> None:
        after = AFTER[event][self.states[block]]
        self.states[block] = after if after != ILLEGAL else move(self.state(block), event)

    def on_all(self, blocks: Sequence[int], event: PageEvent) -> None:
        """As `on` for each of different blocks, or for none of them."""
        states = self.states
        if type(blocks) is range:
            after = states[blocks.start : blocks.stop].translate(AFTER[event])
            self._check(blocks, after, event)
            states[blocks.start : blocks.stop] = after
            return
        after = bytearray(map(states.__getitem__, blocks)).translate(AFTER[event])
        self._check(blocks, after, event)
        for block, state in zip(blocks, after, strict=True):
            states[block] = state

    def state(self, block: int) -> PageState:
        return PageState(self.states[block])

    def states_of(self, blocks: Sequence[int]) -> bytes | bytearray:
        if type(blocks) is range:
            return self.states[blocks.start : blocks.stop]
        return bytes(map(self.states.__getitem__, blocks))

    def leading_readable(self, blocks: Sequence[int]) -> int:
        """How many blocks from the first on may be read now."""
        states = self.states_of(blocks)
        return len(states) - len(states.lstrip(_READABLE))

    def readable(self, block: int) -> bool:
        return self.states[block] in _READABLE

    def place(self, block: int) -> int:
        """Where its page begins, in bytes from the start of the tier."""
        return self.places[block] << UNIT_BITS

    def units(self, blocks: Sequence[int]) -> array[int]:
        """Where pages begin, in units of 4 KiB."""
        if type(blocks) is range:
            return self.places[blocks.start : blocks.stop]
        return array("I", map(self.places.__getitem__, blocks))

    def offsets(self, blocks: Sequence[int], base: int) -> tuple[int, ...]:
        """Where pages begin, counted from `base` bytes before the tier."""
        return tuple([(unit << UNIT_BITS) + base for unit in self.units(blocks)])

    def runs(
        self, blocks: Sequence[int], stride: int, region_bytes: int
    ) -> Iterator[tuple[int, int]]:
        """The places of `blocks` as rows within one region: where each begins, and its pages."""
        unit, step, whole = -1, stride >> UNIT_BITS, region_bytes >> UNIT_BITS
        count = 0
        for at in self.units(blocks):
            if count and at == unit + count * step and at // whole == unit // whole:
                count += 1
                continue
            if count:
                yield unit << UNIT_BITS, count
            unit, count = at, 1
        yield unit << UNIT_BITS, count

    def put(self, blocks: Sequence[int], place: int, stride: int) -> None:
        """Notes that the pages of `blocks` lie one after the other from `place` on."""
        unit, step = place >> UNIT_BITS, stride >> UNIT_BITS
        units = in_a_row(unit, len(blocks), step, "I")
        if type(blocks) is range:
            self.places[blocks.start : blocks.stop] = units
            return
        places = self.places
        for block, at in zip(blocks, units, strict=True):
            places[block] = at

    def adopt(self, blocks: Sequence[int], places: Sequence[int]) -> None:
        """Pages of an earlier life, each at its own place."""
        self.on_all(blocks, PageEvent.ADOPTED)
        units = _units(places)
        if type(blocks) is range:
            self.places[blocks.start : blocks.stop] = units
            return
        for block, unit in zip(blocks, units, strict=True):
            self.places[block] = unit

    def pin(self, blocks: Sequence[int]) -> None:
        """Somebody reads these pages from now on: none of them is given up until unpinned."""
        self.on_all(blocks, PageEvent.PINNED)
        pins = self.pins
        if type(blocks) is range:
            more = pins[blocks.start : blocks.stop].translate(_ONE_MORE)
            if _CROWDED not in more:
                pins[blocks.start : blocks.stop] = more
                return
        for block in blocks:
            count = pins[block]
            if count >= _CROWDED - 1:
                self._crowded[block] = self._crowded.get(block, count) + 1
                pins[block] = _CROWDED
            else:
                pins[block] = count + 1

    def unpin(self, blocks: Sequence[int]) -> None:
        """One reader less; those without any may be given up again."""
        pins = self.pins
        if type(blocks) is range:
            some = pins[blocks.start : blocks.stop]
            if some.count(1) == len(some):
                self.on_all(blocks, PageEvent.LAST_UNPINNED)
                pins[blocks.start : blocks.stop] = bytes(len(some))
                return
        for block in blocks:
            count = pins[block]
            if count == 1:
                self.on(block, PageEvent.LAST_UNPINNED)
                pins[block] = 0
            elif count == _CROWDED:
                self._less_crowded(block)
            elif count:
                pins[block] = count - 1
            else:
                raise IllegalMove("page", "unpinned", "UNPINNED")

    def pins_of(self, block: int) -> int:
        return self._crowded.get(block, self.pins[block])

    def _less_crowded(self, block: int) -> None:
        count = self._crowded[block] - 1
        self._crowded[block] = count
        if count < _CROWDED:
            del self._crowded[block]
            self.pins[block] = count

    def _check(self, blocks: Sequence[int], after: bytes | bytearray, event: PageEvent) -> None:
        at = after.find(ILLEGAL)
        if at >= 0:
            move(self.state(blocks[at]), event)  # raises, and says which


def _units(places: Sequence[int]) -> array[int]:
    if not isinstance(places, Places):
        return array("I", map(rshift, places, repeat(UNIT_BITS)))
    units, step = array("I"), places.stride >> UNIT_BITS
    for first, begin, end in places.rows():
        units += in_a_row(first >> UNIT_BITS, end - begin, step, "I")
    return units
