"""What whoever set things up can do about a failure: the second half of a message."""

from __future__ import annotations

import errno
import os
from typing import Final

OTHER_VERSION: Final = (
    "client and agent are of different versions: fill the engine's folder again with the agent's "
    "own `onggi install-client FOLDER` (in Kubernetes: have the pod made again), and start the "
    "engine again"
)
SLOW: Final = (
    "an agent is there, but it is stopped, or the machine has no time for it; a program that needs"
    " it may wait: client.attach(wait_s=10)"
)
NO_AGENTS_SOCKET: Final = "name an Onggi agent's socket (ONGGI_SOCKET)"


def on_connecting(error: OSError) -> str:
    """Why nobody answers at a socket, and what would help."""
    why = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        who = f"uid {os.geteuid()} and gid {os.getegid()}"
        return f"{why} for {who}: run engine and agent as one user, or in one group"
    return f"{why}: start `onggi agent` with this path as its socket, or name its own to the engine"
