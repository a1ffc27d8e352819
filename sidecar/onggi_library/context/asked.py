"""One attention over one layer: what is on the device first, while the first piece comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch

from onggi_library.attention.partial import Partial, merge
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.skipping import Box, attend_within
from onggi_library.attention.streaming import Heed, attend_all
from onggi_library.attention.tiles import Asking, contribution
from onggi_library.context.attention_map import AttentionMap, Spot
from onggi_library.context.held import Held
from onggi_library.context.layer import Layer
from onggi_library.context.pieces import Bounds
from onggi_library.context.report import Flow
from onggi_library.context.source import Middle, Order

QUERIES_HEEDED_MAX: Final = 16
"""Where attention goes is learned from tokens that are generated: what a prompt asks of itself says
little of what will be asked of it."""


class Heeded:
    """What is asked, how exact, and what was seen of the pieces."""

    def __init__(
        self, asking: Asking, epsilon: float, boxes: Sequence[Box] | None, flow: Flow
    ) -> None:
        self.asking = asking
        self.epsilon = epsilon
        self.boxes = boxes
        self.flow = flow
        self._seen: list[tuple[int, Any]] = []

    def saw(self, first: int, part: Partial) -> None:
        """The piece that begins at block `first` contributed this."""
        if self.asking.at.length <= QUERIES_HEEDED_MAX:
            self._seen.append((first, part.lse))

    def learn(
        self, layer: int, total: Partial, learned: AttentionMap, kept: Sequence[Spot]
    ) -> None:
        """Tell the map which share each piece had of all there was."""
        if not self._seen:
            return
        parts = torch.stack([lse for _, lse in self._seen])
        whole = total.lse.masked_fill(total.lse == float("-inf"), 0.0)
        shares = torch.exp(parts - whole).mean(dim=(1, 2, 3)).tolist()
        firsts = [first for first, _ in self._seen]
        here = [first for number, first in kept if number == layer]
        learned.observe(layer, dict(zip(firsts, shares, strict=True)), here)


def attend_to(heeded: Heeded, layer: int, held: Held) -> Partial:
    """Attention of a layer. The first piece of the next one is begun while it ends."""
    asking, exact = heeded.asking, heeded.boxes is None
    state, side, geometry = held.layers[layer], held.side, held.geometry
    here, coming = _pieces(asking, layer, held)
    upcoming = _upcoming((layer + 1) % len(held.layers), held) if exact else None
    first_two = [order for _, order in coming[:2]] or ([upcoming] if upcoming is not None else [])
    if exact and first_two:
        side.bringer.look_ahead(*first_two)
    side.firsts[layer] = coming[0].number if coming else None
    known = asking.nothing()
    for first, piece in _on_device(state, here):
        part = contribution(asking, piece)
        known = merge(known, part)
        if first is not None:
            heeded.saw(first, part)
        heeded.flow.stayed_bytes += side.batch * piece.span.length * geometry.row_bytes

    def came(number: int, rows: Any) -> None:
        side.hot.offer((layer, coming[number].order.bounds.first), rows)
        if number == len(coming) - 1 and upcoming is not None:
            side.bringer.look_ahead(upcoming)

    def heed(number: int, part: Partial) -> None:
        heeded.saw(coming[number].order.bounds.first, part)

    middle = Middle(geometry, [order for _, order in coming], side.bringer, came)
    if exact:
        return attend_all(asking, middle, heed, known)
    return _within(heeded, middle, coming, known, heed)


def _on_device(state: Layer, here: list[tuple[int, Piece]]) -> Iterator[tuple[int | None, Piece]]:
    for piece in state.resident():
        yield None, piece
    yield from here


class _Coming(NamedTuple):
    """A piece that has to be brought: its number among the layer's pieces, and what it is."""

    number: int
    order: Order


def _pieces(
    asking: Asking, layer: int, held: Held
) -> tuple[list[tuple[int, Piece]], list[_Coming]]:
    """Of the middle, what any query sees: pieces that are here, and those to bring."""
    here: list[tuple[int, Piece]] = []
    coming: list[_Coming] = []
    state, side, geometry = held.layers[layer], held.side, held.geometry
    block = geometry.block_tokens
    for index, bounds in enumerate(side.cut.pieces(state.middle_end)):
        span = Span(bounds.first * block, (bounds.end - bounds.first) * block)
        if not asking.sees(span):
            continue
        rows = side.hot.get((layer, bounds.first), span.length)
        if rows is None:
            coming.append(_Coming(index, _order(state, bounds)))
        else:
            here.append((bounds.first, Piece(span, *geometry.parts(rows))))
    return here, coming


def _order(state: Layer, bounds: Bounds) -> Order:
    return Order(bounds, tuple(row.tobytes() for row in state.numbers(bounds)))


def _upcoming(layer: int, held: Held) -> Order | None:
    """What a layer will want first, if it is what it wanted first the last time."""
    index, state = held.side.firsts.get(layer), held.layers[layer]
    pieces = held.side.cut.pieces(state.middle_end)
    if index is None or index >= len(pieces):
        return None
    return _order(state, pieces[index])


def _within(
    heeded: Heeded,
    middle: Middle,
    coming: Sequence[_Coming],
    known: Partial,
    heed: Heed,
) -> Partial:
    """With certified skipping; what it left out is added to the flow."""
    assert heeded.boxes is not None
    boxes = [heeded.boxes[index] for index, _ in coming]
    found = attend_within(heeded.asking, middle, boxes, heeded.epsilon, known, heed)
    flow = heeded.flow
    if found.skipped:
        flow.skipped += len(found.skipped)
        flow.share_max = max(flow.share_max, float(found.share.max()))
        flow.error_max = max(flow.error_max, float(found.error.max()))
    return found.partial
