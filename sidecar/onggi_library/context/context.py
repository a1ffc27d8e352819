"""A context that does not fit: append keys and values layer by layer, attend to all of them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from onggi import checks
from onggi.arguments import named
from onggi_library.attention.piece import Span
from onggi_library.attention.tiles import Asking, Seen
from onggi_library.attention.visible import Visibility
from onggi_library.context.asked import Heeded, attend_to
from onggi_library.context.attention_map import AttentionMap
from onggi_library.context.geometry import Geometry, check_exactness, geometry_of
from onggi_library.context.held import Held
from onggi_library.context.integrity import Integrity
from onggi_library.context.names import NONCE_BYTES, Names
from onggi_library.context.report import Flow, Report, Tiers
from onggi_library.context.saved import Saved, Shelf
from onggi_library.context.share import Wanted
from onggi_library.context.store import PageStore
from onggi_library.endings import Ending
from onggi_library.manager.sizes import asked
from onggi_library.rounding import EXACT

BLOCK_TOKENS: Final = 128
CHOOSE_EVERY: Final = 8
"""Rounds through all layers between two choices of what stays on the device."""


class TieredContext:
    """Keys and values of some sequences of one length, in an agent's tiers.

    Each layer's first `sinks` tokens and, within device_bytes, its `recent` newest stay on the
    device; the rest goes down to the agent as it comes and is brought back piece by piece. What
    device_bytes leaves holds the pieces that attention was seen to go to.

    For inference: no gradient goes through it. Not to be used from two threads at a time. A call
    that fails ends the context: later ones raise ContextLost. NotInTime of append, attend and crop
    does not: attend and crop may be called again, and after append crop is to be called first.
    """

    @named
    def __init__(
        self,
        socket: str | os.PathLike[str],
        *,
        layers: int,
        device_bytes: int | str,
        sinks: int = 128,
        recent: int = 1024,
        block_tokens: int = BLOCK_TOKENS,
        epsilon: float = 0.0,
        lower: str = EXACT,
        label: str = "",
        learned: AttentionMap | None = None,
    ) -> None:
        """socket: the agent's. device_bytes: a number of bytes, or text such as "1GiB". epsilon: 0
        for exact attention, or the greatest share of any query's attention that may be left out.
        lower: "exact", or "int8" to round what goes down to the tiers (rounding.py). label: whose
        saved contexts these are; those of other labels are not found. learned: what earlier
        contexts showed. Raises TypeError and ValueError."""
        check_exactness(lower, epsilon)
        self._socket = checks.socket_path(socket, "socket")
        budget = asked("device_bytes", device_bytes, 1)
        if not budget.nbytes:
            raise budget.wrong("say what keys and values may take of the device")
        self._wanted = Wanted(budget.nbytes, layers, block_tokens, sinks, recent)
        self.epsilon = epsilon
        self._lower = lower
        self._label = checks.of_type("label", label, str)
        new = AttentionMap() if learned is None else learned
        self.learned = checks.of_type("learned", new, AttentionMap)
        self._names = Names(secrets.token_bytes(NONCE_BYTES))
        self.flow, self._rounds = Flow(), 0
        self._held: Held | None = None
        self._integrity = Integrity()
        self._ending = Ending(self)

    # ---- what there is

    @property
    def layers(self) -> int:
        return self._wanted.layers

    @property
    def batch(self) -> int:
        """Sequences; 0 while nothing was appended."""
        return self._held.batch if self._held is not None else 0

    def length(self, layer: int = 0) -> int:
        """Tokens that were appended to the layer and not cropped. Raises ValueError."""
        self._check_layer(layer)
        return self._held.layers[layer].length if self._held is not None else 0

    def report(self) -> Report:
        """What is where, and what it cost."""
        if self._held is not None:
            return self._held.report(self.flow, self.learned)
        budget = self._wanted.device_bytes
        return Report(budget, self.learned.sureness, replace(self.flow))

    def tiers(self) -> Tiers:
        """What lies below the device. Raises ValueError while nothing was appended, ContextLost if
        the agent does not answer."""
        return self._started().tiers()

    # ---- growing and attending

    def append(self, layer: int, keys: Any, values: Any) -> None:
        """Take in keys [batch, kv heads, tokens, head size], as attention uses them, and values
        [.., value size] of the next tokens. Raises TypeError and ValueError with nothing changed,
        NoRoom, NotInTime, ContextLost."""
        self._check_layer(layer)
        geometry = geometry_of(keys, values, self._wanted.block_tokens, self._lower)
        with self._whole(torn=True):
            held = self._held or self._start(geometry, keys.shape[0], keys.device)
            held.check(layer, geometry, keys)
            held.layers[layer].append(keys, values, held.store)

    def attend(
        self,
        layer: int,
        queries: Any,
        *,
        scale: float | None = None,
        visible: Visibility | None = None,
        seen: Seen | None = None,
        softcap: float | None = None,
    ) -> Any:
        """Attention of the newest tokens' queries [batch, heads, tokens, head size] to everything
        that was appended to the layer: [batch, heads, tokens, value size], of the queries' dtype.

        scale: 1 / sqrt(head size) if it is None. visible: by position, all up to the query's own if
        None. seen and softcap: see `Asking`. Raises TypeError, ValueError, NotInTime, ContextLost.
        """
        self._check_layer(layer)
        with self._whole(torn=False):
            held = self._started()
            held.geometry.check_queries(queries, held.batch, held.layers[layer].length)
            count = queries.shape[2]
            asking = Asking(
                queries,
                Span(held.layers[layer].length - count, count),
                held.geometry.value_size,
                queries.shape[-1] ** -0.5 if scale is None else scale,
                visible or Visibility(),
                seen,
                softcap,
            )
            if layer == 0:
                self._choose(held)
            boxes = held.boxes[layer].all() if held.boxes else None
            heeded = Heeded(asking, self.epsilon, boxes, self.flow)
            total = attend_to(heeded, layer, held)
            heeded.learn(layer, total, self.learned, held.side.hot.kept)
            return total.out.to(queries.dtype)

    # ---- under a name

    def save(
        self, name: str, tokens: Sequence[Sequence[int]], fields: Mapping[str, str | int]
    ) -> None:
        """Leave everything in the tiers under this name, also when this context is closed. tokens:
        of each sequence, as many as there are. fields: what shapes keys and values, the model
        above all. Raises TypeError, ValueError, NoRoom, ContextLost."""
        checks.of_type("name", name, str)
        with self._whole():
            rows = [list(map(int, row)) for row in tokens]
            saved = self._started().save(dict(fields), rows)
            with contextlib.closing(Shelf(self._socket, self._label)) as shelf:
                shelf.put(name, saved)

    def wait_until_written(self) -> None:
        """What went down, and what was saved, is on the agent's disk. For an agent that nobody else
        stores at. Raises NotInTime, ContextLost."""
        self._started().store.until_written()

    def find(self, name: str) -> Saved | None:
        """What was saved under this name, by whatever process. Raises TypeError, ContextLost."""
        checks.of_type("name", name, str)
        with contextlib.closing(Shelf(self._socket, self._label)) as shelf:
            return shelf.get(name)

    def restore(self, saved: Saved, device: Any) -> None:
        """Go on from it, on this device. Raises ValueError if there is something already, and
        ContextLost if a block of it is gone."""
        checks.of_type("saved", saved, Saved)
        with self._whole():
            if self._held is not None or self.epsilon > 0.0:
                raise ValueError(
                    f"this context has {self.length()} tokens and an epsilon of {self.epsilon}; "
                    "restore into an empty one whose epsilon is 0"
                )
            saved.geometry.check(self._wanted.block_tokens, self._lower)
            self._start(saved.geometry, len(saved.tokens), device).take_over(saved)

    # ---- changing

    def crop(self, length: int) -> None:
        """Forget all tokens behind the first `length` of every layer. Raises ValueError, NotInTime,
        ContextLost."""
        checks.whole("length", length)
        with self._whole(torn=True, mending=True):
            there = self._held.shortest if self._held is not None else 0
            if not 0 <= length <= there:
                raise ValueError(f"length is {length}; 0 up to the {there} there are")
            if self._held is not None:
                self._held.crop(length)

    def reorder(self, order: Sequence[int]) -> None:
        """Sequence n becomes what sequence order[n] is; there may be more or fewer than before.
        Raises TypeError and ValueError."""
        order = [checks.whole(f"order[{place}]", number) for place, number in enumerate(order)]
        with self._whole():
            held = self._held
            if held is None:
                return
            if not order or not all(0 <= number < held.batch for number in order):
                raise ValueError(f"order is {order}; use numbers from 0 to {held.batch - 1}")
            if len(order) == held.batch:
                if order != list(range(held.batch)):
                    held.reorder(order)
                return
            if held.boxes:
                raise ValueError(
                    f"epsilon is {self.epsilon}: with bounds the number of sequences stays what it "
                    "is; use an epsilon of 0"
                )
            self.flow = held.flow(self.flow)
            held.select(order)

    def reset(self) -> None:
        """Forget everything but what was learned."""
        with self._whole():
            self._forget()

    def close(self) -> None:
        """Give everything back, here and in the tiers; what was saved stays there. A forked child's
        call does nothing."""
        if self._ending.comes():
            self._forget()
            self._integrity.end(RuntimeError("it was closed"))

    def __enter__(self) -> TieredContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- parts

    def _check_layer(self, layer: int) -> None:
        if not 0 <= checks.whole("layer", layer) < self.layers:
            raise ValueError(f"layer is {layer}; this context has {self.layers}, from 0")

    def _started(self) -> Held:
        if self._held is None:
            raise ValueError("nothing was appended to this context yet")
        return self._held

    def _start(self, geometry: Geometry, batch: int, device: Any) -> Held:
        self._held = Held(
            self._wanted,
            geometry,
            batch,
            device,
            self._names,
            partial(PageStore, self._socket),
            bounds=self.epsilon > 0.0,
        )
        return self._held

    def _choose(self, held: Held) -> None:
        """Once a round, and seldom: what should stay on the device."""
        self._rounds += 1
        if self._rounds % CHOOSE_EVERY == 1:
            held.choose(self.learned)

    def _forget(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self.flow = held.flow(self.flow)
            held.give_back()

    def _whole(
        self, *, torn: bool | None = None, mending: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        return self._integrity.call(self._late, torn=torn, mending=mending)

    def _late(self) -> None:
        if self._held is not None:
            self._held.side.bringer.forget()
