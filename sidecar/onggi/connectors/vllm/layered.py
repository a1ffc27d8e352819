"""A load that arrives layer by layer, so that the first layer computes while later ones arrive.

Two threads share the copying without planning who does what: the engine's thread copies what it
needs next and nobody has begun, a helper copies from the front whatever nobody has begun. A helper
that is late or absent therefore costs nothing but its help.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from onggi.arena import Arena
from onggi.connectors.vllm.layout import PageMap
from onggi.copies import Piece

UNIT_BYTES: Final = 2 * 1024 * 1024
"""Copied at once by one of the two: some 0.2 ms, which is what one of them may wait for the
other, and a hundred times what it costs to agree on who copies it."""


class LayerLoad:
    """Copies of one load, in units by layer. All methods may be called on any thread."""

    def __init__(self, arena: Arena, layers: Sequence[Iterable[Sequence[Piece]]]) -> None:
        """layers: for each layer its units, each a list of pieces."""
        self._arena = arena
        self._turn = threading.Condition()
        self._todo = [deque(units) for units in layers]
        self._left = [len(units) for units in self._todo]
        self._right = True
        self._fault: Exception | None = None

    def help(self) -> None:
        """Copy what nobody has begun, in the order in which it will be needed."""
        for layer in range(len(self._todo)):
            while self._copy_one(layer):
                pass

    def wait(self, layer: int) -> None:
        """Returns when this layer's bytes are there, or will never be; end() tells."""
        if not self._left[layer]:
            return
        while self._copy_one(layer):
            pass
        with self._turn:
            self._turn.wait_for(lambda: not self._left[layer])

    def end(self) -> bool:
        """Wait for all layers. True: the bytes of all of them are right. Raises what a copy
        raised, once nobody copies any more."""
        for layer in range(len(self._todo)):
            self.wait(layer)
        if self._fault is not None:
            raise self._fault
        return self._right and self._arena.alive

    def _copy_one(self, layer: int) -> bool:
        """One unit of a layer. False: all of them have been begun."""
        try:
            unit = self._todo[layer].popleft()
        except IndexError:
            return False
        right = False
        try:
            right = self._right and self._arena.copy_out(unit)
        except Exception as error:  # noqa: BLE001 - raised by end(), on the thread that asks
            self._fault = error
        finally:
            with self._turn:
                self._right &= right
                self._left[layer] -= 1
                if not self._left[layer]:
                    self._turn.notify_all()
        return True


def host_load(arena: Arena, pages: PageMap, pairs: Iterable[tuple[int, int]]) -> LayerLoad:
    """A load of (block id, arena offset) pairs into blocks in host memory. Raises ValueError for a
    block that is not there, before a byte is copied."""
    pairs = tuple(pairs)
    layers = []
    for runs in pages.by_layer():
        share = max(1, UNIT_BYTES // max(1, sum(run.nbytes for run in runs)))
        units = [pairs[first : first + share] for first in range(0, len(pairs), share)]
        layers.append([pages.pieces(unit, runs) for unit in units])
    return LayerLoad(arena, layers)
