"""What whoever set things up can do about a failure: the second half of a message."""

from __future__ import annotations

import errno
import os
import stat
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


def on_connecting(error: OSError, path: str) -> str:
    """Why nobody answers at a socket, and what would help."""
    if other := _no_socket(path):
        return other
    why = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        who = f"uid {os.geteuid()} and gid {os.getegid()}"
        return f"{why} for {who}: run engine and agent as one user, or in one group"
    return f"{why}: start `onggi agent` with this path as its socket, or name its own to the engine"


def _no_socket(path: str) -> str:
    """What lies at the path, if it is something else; the system says of all of it that it refuses
    the connection, as it does of a socket whose agent has ended."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # nothing there, or nothing to see: the system's words say it
        return ""
    if stat.S_ISDIR(mode):
        return (
            f"that is a folder: name the socket in it, such as {os.path.join(path, 'agent.sock')}"
        )
    return "" if stat.S_ISSOCK(mode) else f"that is a file and no socket: {NO_AGENTS_SOCKET}"
