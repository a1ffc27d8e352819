"""How many files this process may open."""

import contextlib
import resource
import sys
from typing import Final

DESCRIPTORS_MIN: Final = 64
"""Of the process: some 20 for itself, and some for clients and disk segments."""


def raise_descriptor_limit() -> int:
    """To what is allowed at most; answers with it. A terabyte of disk is a thousand open segments,
    and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
