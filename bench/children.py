"""Processes that end when the bench does, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)


def start_child(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to `log`. Only for a parent without threads: what runs
    between fork and exec could wait for a lock that one of them held."""
    parent = os.getpid()

    def tie() -> None:
        os.setsid()  # Ctrl-C goes to the bench alone
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=tie)  # noqa: PLW1509
