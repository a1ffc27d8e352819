"""Locks on files that are this process's alone: a child that it forked has no part in them.

An flock belongs to the open file, which a fork shares. A worker that was forked while an agent ran
in the process would hold the agent's locks for as long as it lives, whatever becomes of its parent.
"""

import fcntl
import os
from typing import Final

_held: Final[set[int]] = set()


def claim(fd: int) -> None:
    """Lock the open file until release() or the end of the process. Raises BlockingIOError if
    somebody else has it; the file stays open then."""
    _held.add(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        _held.discard(fd)
        raise


def release(fd: int) -> None:
    """Unlock, whoever else has the file open, and close."""
    _held.discard(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _let_go() -> None:
    """In a forked child: they are the parent's."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)
