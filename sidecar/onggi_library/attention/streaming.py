"""Attention over all pieces of a context in turn; the next is on its way while one is computed.

The device holds two pieces at a time, however long the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from onggi_library.attention.partial import Partial, merge
from onggi_library.attention.piece import Piece, Span
from onggi_library.attention.tiles import Asking, contribution, seen_of
from onggi_library.attention.visible import Visibility

Heed = Callable[[int, Partial], None]
"""Told the number of a piece and what it contributed."""


class Source(Protocol):
    """Where pieces come from."""

    @property
    def spans(self) -> Sequence[Span]:
        """Where the pieces stand, in the order in which they are to be read; no position twice."""
        ...

    def begin(self, number: int) -> Callable[[], Piece]:
        """Begin to bring piece `number` onto the device; the answer waits for it and gives it.

        What is given is valid until the one after the next is begun.
        """
        ...


def attention(
    queries: Any,
    at: Span,
    source: Source,
    *,
    value_size: int,
    scale: float,
    visible: Visibility,
    mask: Any = None,
) -> Partial:
    """Exact attention of queries that stand at `at` to everything that the source has.

    queries: [batch, heads, at.length, head size]. value_size: size of a head's values. mask: None,
    or bool [batch, heads or 1, at.length, keys], True where a key may be seen, over positions 0 up
    to keys; it is asked beside `visible`. Pieces that no query sees are not fetched. Raises
    whatever the source raises.
    """
    seen = seen_of(mask)(at)
    return attend_all(Asking(queries, at, value_size, scale, visible, seen), source)


def attend_all(
    asking: Asking, source: Source, heed: Heed | None = None, known: Partial | None = None
) -> Partial:
    """The same, as one asks it. heed: told what each piece contributed. known: what keys that are
    no part of the source contribute."""
    total = known or asking.nothing()
    wanted = [n for n, span in enumerate(source.spans) if asking.sees(span)]
    for number, piece in zip(wanted, ahead(source, wanted), strict=True):
        part = contribution(asking, piece)
        if heed is not None:
            heed(number, part)
        total = merge(total, part)
    return total


def ahead(source: Source, numbers: Sequence[int]) -> Iterator[Piece]:
    """The pieces, each one's successor begun before it is given."""
    coming = [source.begin(number) for number in numbers[:1]]
    for follower in range(1, len(numbers) + 1):
        piece = coming.pop()()
        coming = [source.begin(number) for number in numbers[follower : follower + 1]]
        yield piece
