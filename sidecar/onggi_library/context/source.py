"""The pieces of one layer's middle that come from the tiers, in their order."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from onggi_library.attention.piece import Piece, Span
from onggi_library.context.geometry import Geometry
from onggi_library.context.lane import Lane
from onggi_library.context.names import Names
from onggi_library.context.pieces import Bounds
from onggi_library.context.store import PageStore


class Order(NamedTuple):
    """One piece to bring: where it stands, and its blocks, a sequence at a time."""

    bounds: Bounds
    numbers: tuple[bytes, ...]
    """As bytes of an array of type code Q: equal ones are the same blocks."""


class Queue:
    """Bytes that were asked for ahead of their use: of pieces on their way, and of the one that the
    agent was told of."""

    def __init__(self) -> None:
        self._coming = self._told = 0
        self.peak_bytes = 0

    @property
    def nbytes(self) -> int:
        return self._coming + self._told

    def begun(self, nbytes: int, told: int) -> None:
        self._coming += nbytes
        self._told = told
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def given(self, nbytes: int) -> None:
        self._coming -= nbytes


class Bringer:
    """Brings pieces through a lane. One that was begun ahead is used if it is what is wanted."""

    def __init__(self, geometry: Geometry, store: PageStore, names: Names, lane: Lane) -> None:
        self._geometry = geometry
        self._store = store
        self._names = names
        self._lane = lane
        self._ahead: tuple[Order, Callable[[], Any]] | None = None
        self._known: dict[bytes, list[bytes]] = {}
        """Keys of the pieces that come, by their numbers: for the lane's thread alone."""
        self.brought_bytes = 0
        self.queue = Queue()

    def look_ahead(self, order: Order, then: Order | None = None) -> None:
        """Begin to bring what will be asked for next. then: what comes after it."""
        if self._ahead is None or self._ahead[0] != order:
            self.forget()
            self._ahead = (order, self._begin(order, then))

    def bring(self, order: Order, then: Order | None = None) -> Callable[[], Any]:
        """Rows [batch, tokens, width] on the device. Raises NotInTime and ContextLost where it is
        waited for. then: what comes after it, which the agent may bring up from disk meanwhile."""
        if self._ahead is not None and self._ahead[0] == order:
            (_, coming), self._ahead = self._ahead, None
            return coming
        self.forget()
        return self._begin(order, then)

    def forget(self) -> None:
        """What was begun ahead is not what is wanted, or something went wrong meanwhile; it comes,
        and nobody takes it."""
        if self._ahead is not None:
            self.queue.given(self._bytes_of(self._ahead[0]))
            self._ahead = None

    def _begin(self, order: Order, then: Order | None) -> Callable[[], Any]:
        self.queue.begun(self._bytes_of(order), self._bytes_of(then) if then is not None else 0)
        coming = self._lane.begin(lambda place: self._fill(order, then, place))

        def give() -> Any:
            try:
                return coming()
            finally:
                self.queue.given(self._bytes_of(order))

        return give

    def _bytes_of(self, order: Order) -> int:
        blocks = order.bounds.end - order.bounds.first
        return len(set(order.numbers)) * blocks * self._geometry.page_bytes

    def _keys(self, packed: bytes) -> list[bytes]:
        numbers = array("Q")
        numbers.frombytes(packed)
        return self._names.keys(numbers)

    def _fill(self, order: Order, then: Order | None, place: Any) -> int:
        chains = dict.fromkeys((*order.numbers, *(then.numbers if then is not None else ())))
        self._known = {packed: self._known.get(packed) or self._keys(packed) for packed in chains}
        self._store.expect([*self._known.values()])
        tokens = (order.bounds.end - order.bounds.first) * self._geometry.block_tokens
        there: dict[bytes, int] = {}
        for sequence, packed in enumerate(order.numbers):
            rows = place[sequence, :tokens]
            if packed in there:  # beams share what came before they parted
                rows.copy_(place[there[packed], :tokens])
                continue
            there[packed] = sequence
            keys = self._known[packed]
            self._store.fetch(keys, rows)
            self.brought_bytes += len(keys) * self._geometry.page_bytes
        return tokens


class Middle:
    """A Source over some pieces of a layer. came: told of each that was brought."""

    def __init__(
        self,
        geometry: Geometry,
        orders: Sequence[Order],
        bringer: Bringer,
        came: Callable[[int, Any], None],
    ) -> None:
        self._geometry = geometry
        self._orders = orders
        self._bringer = bringer
        self._came = came
        block = geometry.block_tokens
        self.spans = [
            Span(bounds.first * block, (bounds.end - bounds.first) * block) for bounds, _ in orders
        ]

    def begin(self, number: int) -> Callable[[], Piece]:
        then = self._orders[number + 1] if number + 1 < len(self._orders) else None
        coming = self._bringer.bring(self._orders[number], then)

        def give() -> Piece:
            rows = coming()
            self._came(number, rows)
            keys, values = self._geometry.parts(rows)
            return Piece(self.spans[number], keys, values)

        return give
