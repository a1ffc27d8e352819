"""The thread that touches extents and offers them one by one.

First touch of memory is 10 to 60 times slower than copying into touched memory, and whoever
touches is charged. So the agent does it, in the background, and an extent is offered only when
all of it is resident.
"""

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onggi_sidecar.arena.file import ArenaFile

_OUT_OF_ROOM: Final = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class TouchEnded:
    """How the touching ended. `problem` is empty unless the volume gave out."""

    ready_count: int
    ready_bytes: int
    asked_bytes: int
    problem: str = ""


class Toucher:
    """Touches every extent of one arena in order, on one thread of its own.

    `offer(extent)` and `ended(TouchEnded)` are called on that thread; the agent hands them on to
    its loop. `ended` is called exactly once, also after stop().
    """

    def __init__(
        self,
        arena: ArenaFile,
        *,
        offer: Callable[[int], None],
        ended: Callable[[TouchEnded], None],
    ) -> None:
        self._arena = arena
        self._offer = offer
        self._ended = ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onggi-touch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after its present step and wait for it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        header = self._arena.header
        asked_bytes = header.extent_bytes * header.extent_count
        ready, problem = 0, ""
        for extent in range(header.extent_count):
            problem = self._touch(extent)
            if problem or self._stop.is_set():
                break
            ready = extent + 1
            self._arena.publish_ready(ready)
            self._offer(extent)
        self._ended(TouchEnded(ready, ready * header.extent_bytes, asked_bytes, problem))

    def _touch(self, extent: int) -> str:
        """Touch one extent; answers what went wrong, or nothing. A half-touched one is freed."""
        try:
            for step in range(self._arena.touch_steps):
                if self._stop.is_set():
                    return ""
                self._arena.touch_step(extent, step)
        except OSError as refused:
            if refused.errno not in _OUT_OF_ROOM:
                raise
            self._arena.release_extent(extent)
            header = self._arena.header
            asked = header.extent_bytes * header.extent_count
            return (
                f"the volume of {self._arena.path} gave out ({refused.strerror}) after "
                f"{extent * header.extent_bytes} of {asked} bytes; serving with what there is"
            )
        return ""
