"""Which cores this process may use, and whether the engine leaves one of them alone.

vLLM on CPU ties its compute threads to cores, and a thread made by one of those is tied to the same
core: the mover's would then run only when the engine does not. vLLM keeps a core free for a
connector on purpose; they have to be let go to get there.
"""

from __future__ import annotations

import contextlib
import os
import threading


def allowed() -> frozenset[int]:
    """Cores that were given to the engine as a whole: its parent's, which nobody has tied down, and
    which a container's or a user's own limit holds for too. Empty where that cannot be known."""
    found: set[int] = set()
    with contextlib.suppress(OSError, AttributeError):
        found = os.sched_getaffinity(0)
        parent = os.getppid()
        if parent > 1:  # 1 may be the container's own first process, or somebody else's
            found |= os.sched_getaffinity(parent)
    return frozenset(found)


def spare(cores: frozenset[int], compute_threads: int) -> bool:
    """Whether so many compute threads, of all ranks here, leave a core alone."""
    return len(cores) > compute_threads


def let_go(cores: frozenset[int]) -> None:
    """The calling thread may run on all of these. Where the system says no, it stays."""
    if cores:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(0, cores)


def give_way(nice: int) -> None:
    """The calling thread, and no other of this process, runs when others do not want to."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
