"""What nobody closed: ended with the interpreter, or with the last reference to it.

What ends without running exit handlers (a kill, `os._exit`, a child of multiprocessing) leaves its
memory and files to whoever starts next there (in_process.py, manager/folder.py).
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


class Ending:
    """Of what has a close(): called at an ordinary end of the interpreter, of what was opened last
    first; threads that the program waits for have ended by then."""

    def __init__(self, opened: Closable, let_go: Callable[[], None] | None = None) -> None:
        """let_go: called in the place of close() when nobody has a reference to `opened` any more,
        on whatever thread that is: it must neither wait nor refer to it. None: its parts go by
        themselves."""
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(
            opened, _end, self._pid, weakref.ref(opened), type(opened).__name__, let_go
        )

    def comes(self) -> bool:
        """For close(): whether it is to go on. A forked child's is not; all is its parent's."""
        self._finalizer.detach()
        return os.getpid() == self._pid


def _end(
    pid: int,
    opened: Callable[[], Closable | None],
    name: str,
    let_go: Callable[[], None] | None,
) -> None:
    if os.getpid() != pid:
        return
    if (still := opened()) is not None:
        still.close()
        return
    if let_go is not None:
        let_go()
    warnings.warn(f"a {name} was not closed", ResourceWarning, stacklevel=2)
