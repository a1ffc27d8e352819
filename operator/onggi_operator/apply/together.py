"""A few writes at a time: one after the other a round would wait for a slow API server so often as
there is something to write, all at once it would be a burst."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any, Final

AT_ONCE: Final = 4

Write = Callable[[], Coroutine[Any, Any, None]]
"""One that may be begun, or not."""


async def together(writes: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Raises the first fault of those that went out together, once they all have ended; what was
    not begun by then is left."""
    waiting = iter(writes)
    try:
        while batch := tuple(islice(waiting, AT_ONCE)):
            ended = await asyncio.gather(*batch, return_exceptions=True)
            for fault in ended:
                if isinstance(fault, BaseException):
                    raise fault
    finally:
        _leave(waiting)


def _leave(writes: Iterator[Coroutine[Any, Any, None]]) -> None:
    for write in writes:
        write.close()
